from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import orders
import pytest
from orders import Order, OrderWorkflow, charge, refund, ship

from everact import ApplicationError
from everact.exceptions import ActivityError, UpdateRejectedError, WorkflowFailedError
from everact.testing import ActivityEnvironment, TestEnvironment

pytestmark = pytest.mark.asyncio
TEAPOT = Order("teapot", Decimal("59.90"), "1 Main Street")
THREE_DAYS = timedelta(days=3)


async def test_an_approved_order_is_shipped() -> None:
    async with TestEnvironment(workflows=[OrderWorkflow]) as env:
        charged = env.mock_activity(charge, returns="charge-1")
        env.mock_activity(ship, returns="parcel-1")
        order = await env.spawn(OrderWorkflow, TEAPOT, THREE_DAYS)
        await order.signal(OrderWorkflow.approve, "Ann")
        assert await order.result() == "teapot for 59.90 shipped to 1 Main Street as parcel-1"
        assert charged.calls[0].args == (Decimal("59.90"),)


async def test_an_order_that_nobody_approves_is_refunded() -> None:
    async with TestEnvironment(workflows=[OrderWorkflow]) as env:
        env.mock_activity(charge, returns="charge-1")
        shipped = env.mock_activity(ship)
        refunded = env.mock_activity(refund, returns="refund-1")
        begun = env.now()
        result = await env.execute(OrderWorkflow, TEAPOT, THREE_DAYS)
        assert result == "refunded, nobody approved within 3 days, 0:00:00"
        assert env.now() - begun == THREE_DAYS
        assert refunded.calls[0].args == ("charge-1", Decimal("59.90"))
        assert not shipped.was_called


async def test_the_address_can_be_changed_until_it_ships() -> None:
    async with TestEnvironment(workflows=[OrderWorkflow]) as env:
        env.mock_activity(charge, returns="charge-1")
        shipped = env.mock_activity(ship, returns="parcel-1", delay=timedelta(minutes=4))
        order = await env.spawn(OrderWorkflow, TEAPOT, THREE_DAYS)
        with pytest.raises(UpdateRejectedError, match="has no house number"):
            await order.execute_update(OrderWorkflow.change_address, "Nowhere")
        assert await order.execute_update(OrderWorkflow.change_address, "2 Side Street") == "1 Main Street"
        await order.signal(OrderWorkflow.approve, "Ann")
        await env.sleep(timedelta(minutes=2))
        assert await order.query(OrderWorkflow.status) == "shipping, address 2 Side Street"
        with pytest.raises(UpdateRejectedError, match="the order is shipping"):
            await order.execute_update(OrderWorkflow.change_address, "3 Back Street")
        await order.result()
        assert shipped.calls[0].args == ("teapot", "2 Side Street")


async def test_a_card_service_that_is_away_for_a_moment_is_asked_again() -> None:
    async with TestEnvironment(workflows=[OrderWorkflow]) as env:
        busy = ConnectionError("busy")
        charged = env.mock_activity(charge, side_effect=[busy, busy, "charge-1"])
        env.mock_activity(ship, returns="parcel-1")
        order = await env.spawn(OrderWorkflow, TEAPOT, THREE_DAYS)
        await order.signal(OrderWorkflow.approve, "Ann")
        await order.result()
        assert [call.attempt for call in charged.calls] == [1, 2, 3]


async def test_a_refused_card_fails_the_order() -> None:
    async with TestEnvironment(workflows=[OrderWorkflow]) as env:
        refused = ApplicationError("no funds", non_retryable=True)
        charged = env.mock_activity(charge, raises=refused)
        with pytest.raises(WorkflowFailedError) as caught:
            await env.execute(OrderWorkflow, TEAPOT, THREE_DAYS)
        assert isinstance(caught.value.__cause__, ActivityError)
        assert charged.call_count == 1


async def test_a_card_is_charged_once_for_each_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders.ledger, "path", tmp_path / "ledger.txt")
    env = ActivityEnvironment()
    with pytest.raises(ConnectionError):
        await env.run(charge, Decimal("59.90"))
    env.info = replace(env.info, attempt=2)
    assert await env.run(charge, Decimal("59.90")) == await env.run(charge, Decimal("59.90"))
    assert len(orders.ledger.path.read_text().splitlines()) == 1


@pytest.mark.crash_everywhere
async def test_an_order_is_charged_and_shipped_once_wherever_the_program_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.txt"
    path.unlink(missing_ok=True)
    monkeypatch.setattr(orders.ledger, "path", path)
    async with TestEnvironment(workflows=[OrderWorkflow], activities=[charge, ship]) as env:
        order = await env.spawn(OrderWorkflow, TEAPOT, THREE_DAYS)
        await order.signal(OrderWorkflow.approve, "Ann")
        assert (await order.result()).startswith("teapot for 59.90 shipped")
    assert sorted(line.split()[1] for line in path.read_text().splitlines()) == ["charge", "ship"]
