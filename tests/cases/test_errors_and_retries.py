"""Chapter C, the second half: errors come back as what they were, and are tried again as it was said."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from support.stores import TroubledStore

from everact import ApplicationError, RetryPolicy, Runtime, activity, workflow
from everact.exceptions import (
    ActivityError,
    CommitUnknownError,
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowQuarantinedError,
)
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.testing import Replayer, TestEnvironment

# --- C09


class CardDeclinedError(Exception):
    def __init__(self, *, card: str, amount: int) -> None:
        super().__init__(card, amount)
        self.card = card

    def __str__(self) -> str:
        return f"card {self.card} was declined"


class Unprintable(Exception):
    def __init__(self, *, first: int, second: int) -> None:
        super().__init__()

    def __str__(self) -> str:
        raise RuntimeError("no text")


class HoldsALock(Exception):
    def __init__(self, *, lock: object, name: str) -> None:
        super().__init__(lock)
        self.lock = lock


ODD = {
    "two keywords": lambda: CardDeclinedError(card="42", amount=10),
    "no text": lambda: Unprintable(first=1, second=2),
    "no pickle": lambda: HoldsALock(lock=asyncio.Lock(), name="x"),
}


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
async def charge(kind: str) -> None:
    try:
        raise KeyError("inner")
    except KeyError as inner:
        odd = ODD[kind]()
        raise odd from inner


@workflow.defn
class Charges:
    @workflow.run
    async def run(self, kind: str) -> list[str]:
        caught = type(ODD[kind]())
        try:
            await charge(kind)
        except ActivityError as error:
            assert error.caused_by(caught) and error.caused_by(caught.__name__)
            assert error.caused_by(KeyError) or error.__cause__.__cause__ is not None
            cause = error.__cause__
            return [type(cause).__name__, str(cause), type(cause.__cause__).__name__]
        raise AssertionError

    @workflow.query
    def look(self) -> int:
        return 1


@workflow.defn
class ChargesUncaught:
    @workflow.run
    async def run(self, kind: str) -> None:
        await charge(kind)


@pytest.mark.parametrize("kind", ODD)
async def test_c09_errors_with_a_constructor_of_their_own_come_back_the_same_live_and_replayed(kind):
    journal = MemoryJournal()
    async with TestEnvironment(
        workflows=[Charges, ChargesUncaught], activities=[charge], journal=journal
    ) as env:
        handle = await env.spawn(Charges, kind, id="caught")
        live = await handle.result()
        failing = await env.spawn(ChargesUncaught, kind, id="uncaught")
        with pytest.raises(WorkflowFailedError, match=type(ODD[kind]()).__name__):
            await failing.result()
        report = Replayer(workflows=[Charges, ChargesUncaught]).replay_many(
            [await handle.fetch_history(), await failing.fetch_history()]
        )
        assert report.passed
        await env.restart()
        assert await handle.query(Charges.look) == 1
    async with TestEnvironment(journal=journal) as env:  # which knows none of the classes
        listed = await env.runtime.list_workflows()
        assert {line.workflow_id: line.status for line in listed} == {
            "caught": "completed",
            "uncaught": "failed",
        }
        assert await env.ref("caught").result() == live
        with pytest.raises(WorkflowFailedError, match=type(ODD[kind]()).__name__):
            await env.ref("uncaught").result()
        assert type(ODD[kind]()).__name__ in (await env.ref("uncaught").describe()).failure


# --- C11


@pytest.mark.parametrize("where", ["set-up", "main", "handler's effect"])
async def test_c11_an_error_that_comes_back_with_every_replay_backs_off_and_stops(where, caplog):
    """What a change of the code brings, when the journal is read again by the next start."""
    tries = []
    broken = False

    @workflow.defn
    class Breaks:
        def __init__(self) -> None:
            if broken and where == "set-up":
                tries.append(1)  # everact: allow
                raise ValueError("recovered and broken")
            self.heard = 0

        @workflow.run
        async def run(self) -> int:
            if broken and where == "main":
                tries.append(1)  # everact: allow
                raise ValueError("recovered and broken")
            await workflow.wait_condition(self.enough)
            return self.heard

        def enough(self) -> bool:
            if broken and where == "handler's effect" and self.heard:
                tries.append(1)  # everact: allow
                raise ValueError("recovered and broken")
            return self.heard == 2

        @workflow.signal
        def hear(self) -> None:
            self.heard += 1

    journal = MemoryJournal()
    async with TestEnvironment(workflows=[Breaks], journal=journal, guard="off") as env:
        handle = await env.spawn(Breaks, id="breaks")
        await handle.signal(Breaks.hear)
    broken = True
    async with TestEnvironment(workflows=[Breaks], journal=journal, guard="off") as env:
        handle = env.ref("breaks", Breaks)
        await handle.signal(Breaks.hear)
        with pytest.raises((WorkflowQuarantinedError, WorkflowHeldError), match="recovered and broken"):
            await handle.result()
        await env.advance(timedelta(days=1))
        assert 1 <= len(tries) <= 10
        assert (await handle.describe()).status in ("quarantined", "held")
    assert "breaks" in caplog.text
    broken = False
    async with TestEnvironment(workflows=[Breaks], journal=journal, guard="off") as env:
        handle = env.ref("breaks", Breaks)
        if (await handle.describe()).status == "quarantined":
            await handle.release()
        assert await handle.result() == 2


@pytest.mark.parametrize("outcome", ["before", "after"])
@pytest.mark.parametrize("at", range(4))
async def test_c11_after_an_append_whose_outcome_is_unknown_the_run_is_what_the_journal_says(outcome, at):
    """Whichever append it is: each message counts once, and each activity is recorded once."""

    @activity.defn
    async def note(number: int) -> int:
        return number

    @workflow.defn
    class Notes:
        def __init__(self) -> None:
            self.noted: list[int] = []

        @workflow.run
        async def run(self) -> list[int]:
            await workflow.wait_condition(lambda: len(self.noted) == 3)
            return self.noted

        @workflow.signal
        async def add(self, number: int) -> None:
            self.noted.append(await note(number))

    store = TroubledStore(MemoryStore(MemoryJournal()))
    async with Runtime(store, workflows=[Notes], activities=[note], durability="os", door=False) as runtime:
        handle = await runtime.spawn(Notes, id="notes")
        store.failures[:] = [None] * at + [outcome]
        for number in range(3):
            for _ in range(5):
                try:
                    await handle.signal(Notes.add, number, request_id=f"r{number}")
                except CommitUnknownError:
                    continue
                break
        try:
            result = await handle.result()
        except CommitUnknownError:  # who waits is told, too
            result = await handle.result()
        assert sorted(result) == [0, 1, 2]
        assert not store.failures
        kinds = Counter(event.kind for event in await handle.fetch_history())
        assert kinds["SignalReceived"] == kinds["ActivityScheduled"] == kinds["ActivityCompleted"] == 3


# --- C12


class ShopError(Exception):
    pass


class SoldOutError(ShopError):
    pass


@pytest.mark.parametrize("form", ["class", "bare", "dotted"])
@pytest.mark.parametrize("named", [SoldOutError, ShopError, Exception])
@pytest.mark.parametrize("policy", ["never", "only"])
async def test_c12_a_policy_may_name_the_class_or_a_base_as_class_bare_or_dotted(form, named, policy):
    name = {"class": named, "bare": named.__name__, "dotted": f"{named.__module__}.{named.__qualname__}"}[
        form
    ]
    given = {"never": "non_retryable_error_types", "only": "retry_on"}[policy]

    @activity.defn
    async def buy() -> None:
        raise NotImplementedError

    @workflow.defn
    class Buys:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_activity(
                buy, retry_policy=RetryPolicy(maximum_attempts=3, **{given: [name]})
            )

    async with TestEnvironment(workflows=[Buys]) as env:
        buys = env.mock_activity(buy, raises=SoldOutError("none left"))
        with pytest.raises(WorkflowFailedError, match="SoldOutError"):
            await env.execute(Buys)
        assert buys.call_count == (1 if policy == "never" else 3)


@pytest.mark.parametrize("name", [KeyError, "SoldOut", "cases.ShopErro", "shoperror", "x.ShopError"])
@pytest.mark.parametrize("policy", ["never", "only"])
async def test_c12_other_names_match_nothing(name, policy):
    given = {"never": "non_retryable_error_types", "only": "retry_on"}[policy]

    @activity.defn
    async def buy() -> None:
        raise NotImplementedError

    @workflow.defn
    class Buys:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_activity(
                buy, retry_policy=RetryPolicy(maximum_attempts=3, **{given: [name]})
            )

    async with TestEnvironment(workflows=[Buys]) as env:
        buys = env.mock_activity(buy, raises=SoldOutError("none left"))
        with pytest.raises(WorkflowFailedError):
            await env.execute(Buys)
        assert buys.call_count == (3 if policy == "never" else 1)


async def test_c12_an_application_error_is_named_by_its_type():
    @activity.defn
    async def buy() -> None:
        raise NotImplementedError

    @workflow.defn
    class Buys:
        @workflow.run
        async def run(self, name: str) -> None:
            await workflow.execute_activity(
                buy, retry_policy=RetryPolicy(maximum_attempts=3, non_retryable_error_types=[name])
            )

    async with TestEnvironment(workflows=[Buys]) as env:
        for name, calls in [("SoldOut", 1), ("Sold", 3), ("ApplicationError", 1)]:
            with env.mock_activity(buy, raises=ApplicationError("none left", type="SoldOut")) as buys:
                with pytest.raises(WorkflowFailedError):
                    await env.execute(Buys, name)
                assert buys.call_count == calls, name


# --- C14


@activity.defn(
    start_to_close_timeout=10,
    retry_policy=RetryPolicy(initial_interval=1, backoff_coefficient=1, jitter=0, maximum_attempts=5),
)
async def first() -> str:
    raise NotImplementedError


@activity.defn(start_to_close_timeout=100)
async def then(number: int) -> int:
    raise NotImplementedError


@workflow.defn
class FansOut:
    @workflow.run
    async def run(self) -> list[str]:
        result = [await first()]
        return result + [f"{number}" for number in await asyncio.gather(*map(then, range(5)))]


@pytest.mark.parametrize("fails", [1, 2, 3])
@pytest.mark.parametrize(
    ("how", "restarts"), [("raises", False), ("raises", True), ("late", False), ("late failure", False)]
)
async def test_c14_a_fan_out_after_a_retried_step_wakes_whatever_comes_late(fails, how, restarts):
    async with TestEnvironment(workflows=[FansOut]) as env:
        late = []

        @env.mock_activity(first)
        async def _() -> str:
            attempt = activity.info().attempt
            if attempt > fails:
                return "good"
            if how == "raises":
                raise OSError("busy")
            try:
                await env.sleep(1000)
            except asyncio.CancelledError:
                await env.sleep(30)  # it does not stop, and has a result during the fan-out
            late.append(attempt)
            if how == "late failure":
                raise OSError("late")
            return f"late {attempt}"

        @env.mock_activity(then)
        async def _(number: int) -> int:
            await env.sleep(20 + 10 * number)
            return number

        handle = await env.spawn(FansOut)
        if restarts:
            await env.sleep(13 * fails)
            await env.restart()
        assert await handle.result() == ["good", "0", "1", "2", "3", "4"]
        assert bool(late) is (how != "raises")
        history = await handle.fetch_history()
        numbers = [event.event.command for event in history if event.kind == "ActivityScheduled"]
        assert numbers == [1, 2, 3, 4, 5, 6]
        kinds = Counter(event.kind for event in history)
        assert kinds["ActivityCompleted"] == 6
        assert Replayer(workflows=[FansOut]).replay(history).passed
