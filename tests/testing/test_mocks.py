"""Fakes of activities and child workflows go through the real pool, on virtual time."""

from datetime import UTC, datetime, timedelta

import pytest

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import (
    ActivityError,
    ActivityTimeoutError,
    ChildWorkflowError,
    PayloadEncodeError,
    WorkflowFailedError,
    WorkflowQuarantinedError,
)
from everact.testing import ActivityNotMockedError, TestEnvironment


@activity.defn
async def charge(order: str, amount: int) -> str:
    raise AssertionError("the real one")


@activity.defn
def ship(order: str) -> None:
    raise AssertionError("the real one")


class Shop:
    @activity.defn
    async def refund(self, order: str) -> int:
        raise AssertionError("the real one")


@workflow.defn
class Order:
    @workflow.run
    async def run(self, order: str, amount: int) -> str:
        receipt = await charge(order, amount=amount)
        await workflow.execute_activity(ship, order)
        return receipt


@workflow.defn
class Refunds:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity_method(Shop.refund, "o-1")


@workflow.defn
class ByName:
    @workflow.run
    async def run(self, values: list[int]) -> str:
        return await workflow.execute_activity("join", *values, result_type=str)


@workflow.defn
class Beating:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(
            "join", result_type=str, heartbeat_timeout=20, retry_policy=RetryPolicy(jitter=0)
        )


@workflow.defn(name="the kid")
class Kid:
    @workflow.run
    async def run(self, n: int) -> str:
        raise AssertionError("the real one")

    @workflow.signal
    def hurry(self) -> None: ...


@workflow.defn
class Parent:
    @workflow.run
    async def run(self, by_method: bool = False) -> str:
        child = await workflow.start_child_workflow(Kid.run if by_method else Kid, 7, id="kid-7")
        await child.signal(Kid.hurry)
        return await child


async def test_results_calls_and_counts():
    async with TestEnvironment(workflows=[Order]) as env:
        charged = env.mock_activity(charge, returns="r-1")
        shipped = env.mock_activity(ship)
        assert not charged.was_called
        assert await env.execute(Order, "o-1", 5, id="w") == "r-1"
        assert charged.was_called
        assert (charged.call_count, shipped.call_count) == (1, 1)
        call = charged.calls[0]
        assert (call.args, call.kwargs, call.attempt) == (
            ("o-1", 5),
            {},
            1,
        )  # by position, as the journal has it
        assert (call.info.workflow_id, call.info.activity_type) == ("w", "charge")
        assert call.at == datetime(2026, 1, 1, tzinfo=UTC)
        assert repr(charged) == "<ActivityMock of 'charge', 1 calls>"


async def test_failures_are_tried_again_on_virtual_time():
    async with TestEnvironment(workflows=[Order]) as env:
        charged = env.mock_activity(charge, side_effect=[ValueError("busy"), ConnectionError, "r-1"])
        env.mock_activity(ship)
        assert await env.execute(Order, "o-1", 5) == "r-1"
        assert [call.attempt for call in charged.calls] == [1, 2, 3]
        first, second, third = (call.at for call in charged.calls)
        assert timedelta(seconds=0.9) <= second - first <= timedelta(seconds=1.1)
        assert timedelta(seconds=1.8) <= third - second <= timedelta(seconds=2.2)


async def test_a_failure_for_good_uses_up_the_policy():
    async with TestEnvironment(workflows=[Order]) as env:
        charged = env.mock_activity(charge, raises=ValueError("no"))
        with pytest.raises(WorkflowFailedError) as caught:
            await env.execute(Order, "o-1", 5)
        assert isinstance(caught.value.__cause__, ActivityError)
        assert charged.call_count == 10


async def test_a_delay_is_virtual_and_limits_hold_for_it():
    async with TestEnvironment(workflows=[Order]) as env:
        env.mock_activity(charge, returns="r-1", delay=timedelta(minutes=3))
        env.mock_activity(ship)
        await env.execute(Order, "o-1", 5)
        assert env.now() == datetime(2026, 1, 1, 0, 3, tzinfo=UTC)
        env.mock_activity(charge, returns="r-1", delay=timedelta(minutes=6))
        with pytest.raises(WorkflowFailedError) as caught:
            await env.execute(Order, "o-1", 5)
        assert isinstance(caught.value.__cause__.__cause__, ActivityTimeoutError)


async def test_heartbeats_keep_an_attempt_alive_and_reach_the_next_one():
    async with TestEnvironment(workflows=[Beating]) as env:
        joined = env.mock_activity(
            "join", side_effect=[ValueError("x"), "ok"], delay=50, heartbeats=[1, 2, (3, 4)]
        )
        assert await env.execute("Beating") == "ok"
        assert joined.calls[1].info.heartbeat_details == (3, 4)


async def test_silence_is_a_heartbeat_timeout():
    async with TestEnvironment(workflows=[Beating]) as env:
        joined = env.mock_activity("join", returns="ok", delay=50)
        with pytest.raises(WorkflowFailedError) as caught:
            await env.execute("Beating")
        assert "heartbeat" in str(caught.value.__cause__.__cause__)
        assert joined.call_count == 10


async def test_by_name_by_code_and_by_method():
    async with TestEnvironment(workflows=[ByName, Refunds]) as env:

        @env.mock_activity("join")
        def join(*values):
            return "+".join(map(str, values))

        @env.mock_activity(Shop.refund)
        async def refund(order):
            await env.sleep(1)
            return 12

        assert await env.execute(ByName, [1, 2]) == "1+2"
        assert await env.execute(Refunds) == 12
        assert (join.call_count, refund.calls[0].args) == (1, ("o-1",))


async def test_a_function_of_any_arguments_may_answer_for_a_name_that_nobody_has_declared():
    @workflow.defn
    class TwoCalls:
        @workflow.run
        async def run(self) -> list[object]:
            first = await workflow.execute_activity("unknown", 1)
            return [first, await workflow.execute_activity("unknown", 2, 3)]

    async with TestEnvironment(workflows=[TwoCalls]) as env:
        env.mock_activity("unknown", side_effect=lambda first, second=10: first + second)
        assert await env.execute(TwoCalls) == [11, 5]


async def test_a_block_ends_the_mock_and_the_one_before_is_back():
    async with TestEnvironment(workflows=[ByName]) as env:
        outer = env.mock_activity("join", returns="outer")
        with env.mock_activity("join", returns="inner") as inner:
            assert await env.execute(ByName, [1]) == "inner"
        assert await env.execute(ByName, [1]) == "outer"
        assert (outer.call_count, inner.call_count) == (1, 1)


async def test_mocks_stay_over_a_restart():
    async with TestEnvironment(workflows=[Order]) as env:
        charged = env.mock_activity(charge, returns="r-1", delay=60)
        env.mock_activity(ship)
        handle = await env.spawn(Order, "o-1", 5)
        await env.sleep(30)
        await env.restart()
        assert await handle.result() == "r-1"
        assert charged.call_count == 2


@pytest.mark.parametrize("by_method", [False, True])
async def test_a_child_workflow_is_mocked(by_method):
    async with TestEnvironment(workflows=[Parent]) as env:
        kid = env.mock_workflow(Kid, returns="done", delay=timedelta(days=2))
        assert await env.execute(Parent, by_method) == "done"
        assert kid.calls[0].args == (7,)
        assert env.now() == datetime(2026, 1, 3, tzinfo=UTC)
        described = await env.ref("kid-7").describe()
        assert (described.workflow_type, described.status) == ("the kid", "completed")
        assert await env.execute(Kid, 8) == "done"


async def test_a_mocked_child_fails_as_a_real_one():
    async with TestEnvironment(workflows=[Parent]) as env:
        env.mock_workflow(Kid, raises=ApplicationError("no", type="Sick"), delay=1)
        with pytest.raises(WorkflowFailedError) as caught:
            await env.execute(Parent)
        child = caught.value.__cause__
        assert isinstance(child, ChildWorkflowError)
        assert child.caused_by("Sick")


def test_what_does_not_fit_is_refused_where_the_mock_is_made():
    env = TestEnvironment()
    with pytest.raises(PayloadEncodeError, match="result of activity charge"):
        env.mock_activity(charge, returns=5)
    with pytest.raises(PayloadEncodeError, match="result of activity charge"):
        env.mock_activity(charge, side_effect=["a", ValueError(), 5])
    with pytest.raises(
        TypeError, match="the mock of activity 'charge' takes one of returns, raises and side_effect, "
    ):
        env.mock_activity(charge, returns="a", raises=ValueError)
    with pytest.raises(
        TypeError,
        match=r"the side_effect of the mock of activity 'charge' must take its arguments \(order, amount\): ",
    ):
        env.mock_activity(charge, side_effect=lambda order: "x")
    with pytest.raises(
        TypeError, match="raises of the mock of activity 'charge' must be an exception, not 5"
    ):
        env.mock_activity(charge, raises=5)
    with pytest.raises(
        TypeError, match="side_effect of the mock of activity 'charge' must be a function, or a list"
    ):
        env.mock_activity(charge, side_effect=5)
    mock = env.mock_activity(charge, returns="a")
    with pytest.raises(TypeError, match="the mock of activity 'charge' has an outcome already"):
        mock(lambda order, amount: "b")


async def test_wrong_arguments_are_refused_at_the_call_as_by_the_real_one():
    async with TestEnvironment(workflows=[Order]) as env:
        charged = env.mock_activity(charge, returns="r")
        with pytest.raises(PayloadEncodeError):
            await env.execute(Order, "o-1", "much")
        assert not charged.was_called


async def test_more_calls_than_outcomes_fail():
    async with TestEnvironment(workflows=[ByName]) as env:
        env.mock_activity("join", side_effect=["a"])
        assert await env.execute(ByName, [1]) == "a"
        with pytest.raises(WorkflowFailedError) as caught:
            await env.execute(ByName, [1])
        assert (
            "the mock of activity 'join' has outcomes for 1 call, and this is call 2: give side_effect a longer list"
            in str(caught.value.__cause__)
        )


async def test_an_activity_that_is_neither_registered_nor_mocked_fails_the_test_at_once():
    async with TestEnvironment(workflows=[Order]) as env:
        with pytest.raises(ActivityNotMockedError) as caught:
            await env.execute(Order, "o-1", 5)
    assert str(caught.value) == (
        "activity 'charge' is neither registered nor mocked: pass it in activities=[...], or call "
        "env.mock_activity('charge', returns=...)"
    )


async def test_a_fake_that_comes_too_late_for_a_run_of_the_journal_is_told_when_to_be_made(tmp_path):
    journal = tmp_path / "journal"
    env = TestEnvironment(workflows=[Order], journal=journal, replay=False)
    env.mock_activity(charge, returns="paid", delay=3600)
    async with env:
        await env.spawn(Order, "o-1", 5, id="order-1")
        await env.sleep(1)

    late = TestEnvironment(workflows=[Order], journal=journal, replay=False)
    with pytest.raises(ActivityNotMockedError) as caught:
        async with late:
            late.mock_activity(charge, returns="paid")
            await late.ref("order-1").result()
    assert str(caught.value) == (
        "activity 'charge' was called before it was mocked, by a run that the journal had when the environment was "
        "opened: call env.mock_activity('charge', ...) before 'async with env:'"
    )

    early = TestEnvironment(workflows=[Order], journal=journal, replay=False)
    early.mock_activity(charge, returns="paid")
    early.mock_activity(ship)
    async with early:
        await early.ref("order-1").result()


async def test_it_fails_at_the_end_when_nobody_waits():
    with pytest.raises(ActivityNotMockedError, match="activity 'charge'"):
        async with TestEnvironment(workflows=[Order]) as env:
            handle = await env.spawn(Order, "o-1", 5)
            await handle.terminate()


async def test_without_strict_it_is_as_in_production():
    async with TestEnvironment(workflows=[Order], strict=False) as env:
        with pytest.raises(WorkflowQuarantinedError, match="activity 'charge' is not registered"):
            await env.execute(Order, "o-1", 5)
