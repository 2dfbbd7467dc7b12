"""What a start makes of the last process's hard death (R12, R4)."""

import asyncio
import logging

import pytest
from support.codecs import InThreads
from support.deaths import ATTEMPT, QUERY, START, TURN, VALIDATOR, Grave
from support.hosting import gate, hosted, kinds, settled, until
from support.stores import TroubledStore

from everact import RetryPolicy, activity, workflow
from everact.exceptions import (
    ActivityError,
    AttemptLostError,
    CommitUnknownError,
    JournalCorruptError,
    QueryFailedError,
    UpdateRejectedError,
    WorkflowClosedError,
    WorkflowQuarantinedError,
)
from everact.journal.events import AttemptLost, RunBlamed
from everact.journal.memory_store import MemoryJournal
from everact.journal.run_index import RunIndex
from everact.journal.verify import verify
from everact.payloads import AesGcmCodec
from everact.supervision import flight_recorder

pytestmark = pytest.mark.usefixtures("keeps_code")


@workflow.defn
class Notes:
    def __init__(self) -> None:
        self.notes: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: len(self.notes) == 3)
        return self.notes

    @workflow.signal
    def note(self, text: str) -> None:
        self.notes.append(text)

    @workflow.query
    def count(self) -> int:
        return len(self.notes)

    @workflow.update
    def add(self, text: str) -> int:
        self.notes.append(text)
        return len(self.notes)

    @add.validator
    def check_add(self, text: str) -> None:
        if not text:
            raise ValueError("empty")


@workflow.defn
class Calls:
    @workflow.run
    async def run(self) -> str:
        try:
            return await workflow.execute_activity("gated", "a", result_type=str)
        except ActivityError as error:
            assert error.caused_by(AttemptLostError)
            return f"{error.retry_state}: {error.__cause__}"


@pytest.fixture
def grave(tmp_path):
    return Grave(MemoryJournal(), tmp_path)


def events(history, kind):
    return [entry.event for entry in history if isinstance(entry.event, kind)]


async def begun(grave, *workflows, activities=()):
    """One life that starts one run of each; key 1, 2, ..."""
    async with hosted(grave.store(), *workflows, activities=activities) as runtime:
        for number, kind in enumerate(workflows, 1):
            await runtime.spawn(kind, id=f"run-{number}")
        await settled(runtime)


async def test_an_orderly_end_blames_nobody(grave):
    await begun(grave, Notes)
    assert list(grave.directory.iterdir()) == []
    async with hosted(grave.store(), Notes) as runtime:
        assert runtime._shard.marks.recorder.is_kept
        history = await runtime.ref("run-1", Notes).fetch_history()
        assert events(history, RunBlamed) == []


async def test_three_deaths_alone_quarantine_a_run(grave, caplog):
    await begun(grave, Notes)
    for deaths in (1, 2, 3):
        grave.die((TURN, 1, 5))
        async with hosted(grave.store(), Notes) as runtime:
            handle = runtime.ref("run-1", Notes)
            description = await handle.describe()
            assert description.status == ("quarantined" if deaths == 3 else "running")
            assert description.deaths == deaths
    assert "the last process died while code ran: a turn of workflow 'run-1'" in caplog.text
    assert description.failure.startswith(
        "ProcessDiedError: the process died 3 times while a turn of the workflow ran, and nothing else"
    )
    caplog.clear()
    async with hosted(grave.store(), Notes) as runtime:  # and an orderly start does not try it again
        handle = runtime.ref("run-1", Notes)
        with pytest.raises(WorkflowQuarantinedError, match="the process died 3 times"):
            await handle.result()
        history = await handle.fetch_history()
    assert "alone" not in caplog.text
    assert [event.alone for event in events(history, RunBlamed)] == [True] * 3
    assert len({event.life for event in events(history, RunBlamed)}) == 3


async def test_progress_forgives(grave):
    await begun(grave, Notes)
    for _ in range(5):
        grave.die((TURN, 1, 5))
        async with hosted(grave.store(), Notes) as runtime:
            handle = runtime.ref("run-1", Notes)
            assert (await handle.describe()).deaths == 1
            if (await handle.query(Notes.count)) < 2:
                await handle.signal(Notes.note, "x")
            else:
                await handle.cancel()
            await settled(runtime)
            if runtime._shard.find("run-1").is_closed:
                break
            assert (await handle.describe()).deaths == 0
    async with hosted(grave.store(), Notes) as runtime:
        assert (await runtime.ref("run-1", Notes).describe()).status == "cancelled"


async def test_of_several_suspects_none_is_counted(grave):
    await begun(grave, Notes, Calls, activities=[gate().fn])
    for _ in range(4):
        grave.die((TURN, 1, 5), (TURN, 2, 5))
        async with hosted(grave.store(), Notes, Calls, activities=[gate().fn]) as runtime:
            description = await runtime.ref("run-1", Notes).describe()
            assert (description.status, description.deaths) == ("running", 0)
    async with hosted(grave.store(), Notes, Calls, activities=[gate().fn]) as runtime:
        history = await runtime.ref("run-1", Notes).fetch_history()
        assert [event.alone for event in events(history, RunBlamed)] == [False] * 4


async def test_after_a_death_what_comes_in_is_durable_before_it_is_handled(grave):
    await begun(grave, Notes)
    grave.die((TURN, 1, 5))
    async with hosted(grave.store(), Notes) as runtime:
        handle = runtime.ref("run-1", Notes)
        await handle.signal(Notes.note, "kept first")
        await settled(runtime)
        records = (await handle.fetch_history()).records
        assert [type(record).__name__ for _at, record in records[-3:]] == ["Turn", "Received", "Turn"]
        assert records[-1][1].delivers
        assert await handle.execute_update(Notes.add, "as before") == 2
        assert type((await handle.fetch_history()).records[-1][1]).__name__ == "Turn"


async def test_an_update_of_a_blamed_run_is_validated_before_it_is_kept(grave):
    await begun(grave, Notes)
    grave.die((TURN, 1, 5))
    async with hosted(grave.store(), Notes) as runtime:
        handle = runtime.ref("run-1", Notes)
        with pytest.raises(UpdateRejectedError):
            await handle.execute_update(Notes.add, "")
        assert events(await handle.fetch_history(), RunBlamed)
        assert await handle.execute_update(Notes.add, "x") == 1


async def test_a_start_that_was_not_durable_is_kept_first_the_next_time(grave):
    await begun(grave, Notes)
    grave.die((START, 2, 1, "poison"))
    async with hosted(grave.store(), Notes) as runtime:
        handle = await runtime.spawn(Notes, id="poison")
        other = await runtime.spawn(Notes, id="other")
        await settled(runtime)
        histories = [await one.fetch_history() for one in (handle, other)]
        assert [type(records[0][1]).__name__ for records in (h.records for h in histories)] == [
            "Received",
            "Turn",
        ]
        await handle.signal(Notes.note, "a")
        assert type((await handle.fetch_history()).records[-1][1]).__name__ == "Turn"


@pytest.mark.parametrize("kind", ["query", "validator"])
async def test_a_query_or_validator_is_refused_and_its_run_goes_on(grave, kind):
    await begun(grave, Notes)
    for deaths in (1, 2, 3):
        grave.die((QUERY, 1, 5, "count") if kind == "query" else (VALIDATOR, 1, 5, "add"))
        async with hosted(grave.store(), Notes) as runtime:
            handle = runtime.ref("run-1", Notes)
            description = await handle.describe()
            assert (description.status, description.deaths) == ("running", deaths)
            if kind == "query" and deaths < 3:
                assert await handle.query(Notes.count) == 0
            elif kind == "query":
                with pytest.raises(QueryFailedError, match="died 3 times while its query count ran"):
                    await handle.query(Notes.count)
            elif deaths == 3:
                with pytest.raises(UpdateRejectedError) as caught:
                    await handle.execute_update(Notes.add, "x")
                assert "died 3 times while its validator add ran" in str(caught.value)
    async with hosted(grave.store(), Notes) as runtime:
        handle = runtime.ref("run-1", Notes)
        await handle.signal(Notes.note, "progress")
        assert await handle.query(Notes.count) == 1
        assert await handle.execute_update(Notes.add, "x") == 2


async def test_an_attempt_in_hand_is_lost_and_counted(grave):
    first = gate(retry_policy=RetryPolicy(maximum_attempts=2))
    await begun(grave, Calls, activities=[first.fn])
    grave.die(waiting=[(ATTEMPT, 1, 1, 1)])
    again = gate(retry_policy=RetryPolicy(maximum_attempts=2))
    async with hosted(grave.store(), Calls, activities=[again.fn]) as runtime:
        await until(lambda: again.calls)
        [pending] = (await runtime.ref("run-1", Calls).describe()).pending_activities
        assert pending.attempt == 2
        assert pending.last_failure == ("AttemptLostError: the process died while the attempt was in hand")
    grave.die(waiting=[(ATTEMPT, 1, 1, 2)])
    async with hosted(grave.store(), Calls, activities=[gate().fn]) as runtime:
        result = await runtime.ref("run-1", Calls).result()
    assert result == ("maximum_attempts=2 reached: the process died while the attempt was in hand")


async def test_an_attempt_that_had_not_begun_runs_under_its_number(grave):
    await begun(grave, Calls, activities=[gate().fn])
    grave.die((TURN, 1, 5))
    again = gate()
    async with hosted(grave.store(), Calls, activities=[again.fn]) as runtime:
        await until(lambda: again.calls)
        [pending] = (await runtime.ref("run-1", Calls).describe()).pending_activities
        assert (pending.attempt, pending.last_failure) == (1, None)


@pytest.mark.parametrize("why", ["reboot", "excused"])
async def test_an_attempt_is_not_counted_when_the_machine_died_or_the_process_was_ended(
    grave, why, monkeypatch
):
    once = gate(retry_policy=RetryPolicy(maximum_attempts=1))
    await begun(grave, Calls, activities=[once.fn])
    for number in range(1, 6):
        grave.die((ATTEMPT, 1, 1, number), excused=why == "excused")
        again = gate(retry_policy=RetryPolicy(maximum_attempts=1))
        if why == "reboot":
            monkeypatch.setattr(flight_recorder, "boot_id", lambda number=number: f"boot-{number}")
        async with hosted(grave.store(), Calls, activities=[again.fn]) as runtime:
            await until(lambda again=again: again.calls)
            [pending] = (await runtime.ref("run-1", Calls).describe()).pending_activities
            assert pending.attempt == number + 1
            assert pending.last_failure.endswith("it is not counted")
            if number == 5:
                again.open.set()
                assert await runtime.ref("run-1", Calls).result() == "through"
                history = await runtime.ref("run-1", Calls).fetch_history()
    assert not any(event.counted or event.blamed for event in events(history, AttemptLost))


async def test_three_deaths_of_an_attempt_alone_end_the_activity(grave):
    forever = RetryPolicy(maximum_attempts=0)
    await begun(grave, Calls, activities=[gate(retry_policy=forever).fn])
    for number in (1, 2, 3):
        grave.die((ATTEMPT, 1, 1, number))
        async with hosted(grave.store(), Calls, activities=[gate(retry_policy=forever).fn]) as runtime:
            if number == 3:
                result = await runtime.ref("run-1", Calls).result()
    assert result == (
        "the process died 3 times while an attempt ran, and nothing else: "
        "the process died while the attempt's code ran, and nothing else"
    )


async def test_suspects_run_alone_before_the_others(grave):
    """Runs first, then attempts, one at a time; only then the rest."""
    order = []

    @workflow.defn
    class Steps:
        @workflow.run
        async def run(self, name: str) -> None:
            await workflow.execute_activity("gated", name, result_type=str)
            order.append(f"turn of {name}")

    one = gate()
    async with hosted(grave.store(), Steps, activities=[one.fn]) as runtime:
        for name in "abcd":
            await runtime.spawn(Steps, name, id=name)
        await until(lambda: len(one.calls) == 4)
    grave.die((ATTEMPT, 2, 1, 1), (ATTEMPT, 3, 1, 1), waiting=[(ATTEMPT, 1, 1, 1)])
    again = gate()
    async with hosted(grave.store(), Steps, activities=[again.fn]) as runtime:
        shard = runtime._shard
        await until(lambda: again.calls)
        await settled(runtime)
        assert again.calls == ["b"]
        asking = runtime.ref("d", Steps).describe()
        again.open.set()
        await asking
        await until(lambda: len(order) == 4)
        assert again.calls[:2] == ["b", "c"]
        assert sorted(again.calls) == ["a", "b", "c", "d"]
        assert shard.isolation is None


@pytest.mark.parametrize("codecs", [(), (InThreads(),)], ids=["plain", "coded"])
async def test_pause_and_terminate_of_others_act_while_suspects_run_alone(grave, codecs):
    """They are what an operator has just then; no code of those runs comes to run."""
    one = gate()
    async with hosted(grave.store(), Calls, Notes, activities=[one.fn], codecs=codecs) as runtime:
        await runtime.spawn(Calls, id="suspect")
        for name in ("paused", "ended", "held back"):
            await runtime.spawn(Notes, id=name)
        await until(lambda: one.calls)
    grave.die((ATTEMPT, 1, 1, 1))
    again = gate()
    async with hosted(grave.store(), Calls, Notes, activities=[again.fn], codecs=codecs) as runtime:
        refs = {name: runtime.ref(name, Notes) for name in ("paused", "ended", "held back")}
        await until(lambda: again.calls)
        sending = {name: asyncio.create_task(ref.signal(Notes.note, "x")) for name, ref in refs.items()}
        await settled(runtime)
        assert runtime._shard.isolation is not None
        assert not any(task.done() for task in sending.values())
        async with asyncio.timeout(10):
            await refs["paused"].pause("a look")
            await refs["ended"].terminate("enough")
            await refs["paused"].resume("seen")
            await refs["paused"].pause("once more")
        await settled(runtime)
        assert runtime._shard.isolation is not None
        assert not sending["held back"].done()
        assert not sending["paused"].done()
        again.open.set()
        await sending["held back"]
        await sending["paused"]
        with pytest.raises(WorkflowClosedError):
            await sending["ended"]
        assert (await refs["paused"].describe()).status == "paused"
        assert await refs["held back"].query(Notes.count) == 1


async def test_terminating_the_suspect_that_is_alone_lets_the_others_go_on(grave):
    one = gate()
    async with hosted(grave.store(), Calls, Notes, activities=[one.fn]) as runtime:
        await runtime.spawn(Calls, id="suspect")
        await runtime.spawn(Notes, id="other")
        await until(lambda: one.calls)
    grave.die((ATTEMPT, 1, 1, 1))
    again = gate()
    async with hosted(grave.store(), Calls, Notes, activities=[again.fn]) as runtime:
        await until(lambda: again.calls)
        sending = asyncio.create_task(runtime.ref("other", Notes).signal(Notes.note, "x"))
        await settled(runtime)
        assert not sending.done()
        async with asyncio.timeout(10):
            await runtime.ref("suspect", Calls).terminate("it kills us")
            await sending
        assert runtime._shard.isolation is None


async def test_a_suspect_that_goes_on_and_on_is_alone_for_a_while_only(grave, monkeypatch):
    monkeypatch.setattr("everact.supervision.blame.PROBATION", 0.01)
    one = gate()
    async with hosted(grave.store(), Calls, activities=[one.fn]) as runtime:
        for name in "ab":
            await runtime.spawn(Calls, id=name)
        await until(lambda: len(one.calls) == 2)
    grave.die((ATTEMPT, 1, 1, 1))
    again = gate()
    async with hosted(grave.store(), Calls, activities=[again.fn]) as runtime:
        await until(lambda: len(again.calls) == 2)
        assert runtime._shard.isolation is None


async def test_leaving_while_suspects_run_alone_loses_nothing(grave):
    one = gate()
    async with hosted(grave.store(), Calls, Notes, activities=[one.fn]) as runtime:
        await runtime.spawn(Calls, id="run-1")
        await runtime.spawn(Notes, id="run-2")
        await until(lambda: one.calls)
    grave.die((ATTEMPT, 1, 1, 1))
    async with hosted(grave.store(), Calls, Notes, activities=[gate().fn]) as runtime:
        sending = asyncio.create_task(runtime.ref("run-2", Notes).signal(Notes.note, "x"))
        await settled(runtime)
        assert not sending.done()
    await sending
    async with hosted(grave.store(), Calls, Notes, activities=[gate().fn]) as runtime:
        assert await runtime.ref("run-2", Notes).query(Notes.count) == 1


async def test_attempts_that_were_cut_by_leaving_are_not_counted(grave):
    for number in range(3):
        one = gate(retry_policy=RetryPolicy(maximum_attempts=1))
        async with hosted(grave.store(), Calls, activities=[one.fn]) as runtime:
            if not number:
                await runtime.spawn(Calls, id="run-1")
            await until(lambda one=one: one.calls)
            [pending] = (await runtime.ref("run-1", Calls).describe()).pending_activities
            assert pending.attempt == 1


async def test_without_room_for_the_recorder_the_runtime_goes_on(grave, monkeypatch, caplog):
    def full(_fd, _data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(flight_recorder, "_write", full)
    with caplog.at_level(logging.WARNING):
        await begun(grave, Notes)
    assert "the flight recorder cannot be written ([Errno 28] No space left on device)" in caplog.text


async def test_marks_of_outcomes_are_given_back(grave):
    one = gate()
    one.open.set()
    async with hosted(grave.store(), Calls, activities=[one.fn]) as runtime:
        for number in range(20):
            await runtime.execute(Calls, id=f"run-{number}")
        await settled(runtime)
        recorder = runtime._shard.marks.recorder
        free = [recorder.take() for _ in range(100)]
        assert len(set(free)) == 100  # no attempt has kept one, and none was given back twice
        assert not runtime._shard.marks._held
        history = await runtime.ref("run-0", Calls).fetch_history()
    assert "ActivityCompleted" in kinds(history)


async def test_with_payload_codecs_it_is_the_same(grave):
    codec = {"codecs": [AesGcmCodec({"k": bytes(32)}, active="k")]}
    one = gate(retry_policy=RetryPolicy(maximum_attempts=2))
    async with hosted(grave.store(), Notes, Calls, activities=[one.fn], **codec) as runtime:
        await runtime.spawn(Notes, id="notes")
        await runtime.spawn(Calls, id="calls")
        await until(lambda: one.calls)
    for deaths in (1, 2, 3):
        grave.die((TURN, 1, 5), waiting=[(ATTEMPT, 2, 1, deaths)])
        one = gate(retry_policy=RetryPolicy(maximum_attempts=2))
        async with hosted(grave.store(), Notes, Calls, activities=[one.fn], **codec) as runtime:
            description = await runtime.ref("calls", Calls).describe()
            if deaths == 1:
                [pending] = description.pending_activities
                assert pending.last_failure.endswith("the process died while the attempt was in hand")
                await until(lambda one=one: one.calls)
            else:
                result = await runtime.ref("calls", Calls).result()
                assert result.startswith("maximum_attempts=2 reached: the process died")
            description = await runtime.ref("notes", Notes).describe()
    assert description.status == "quarantined"
    assert "the process died 3 times" in description.failure


async def test_a_commit_that_fails_while_suspects_run_alone(grave):
    """The rebuild ends it: all go on, and no attempt is started twice."""
    one = gate()
    async with hosted(grave.store(), Calls, Notes, activities=[one.fn]) as runtime:
        for name in "ab":
            await runtime.spawn(Calls, id=name)
        await runtime.spawn(Notes, id="notes")
        await until(lambda: len(one.calls) == 2)
    grave.die((ATTEMPT, 1, 1, 1))
    again = gate()
    store = TroubledStore(grave.store())
    store.directory = str(grave.directory)
    async with hosted(store, Calls, Notes, activities=[again.fn]) as runtime:
        await until(lambda: again.calls)
        assert runtime._shard.isolation is not None
        store.failures = ["before"]
        again.open.set()  # the outcome of what runs alone is the first to be written
        for name in "ab":
            try:
                result = await runtime.ref(name, Calls).result()
            except CommitUnknownError:
                result = await runtime.ref(name, Calls).result()
            assert result == "through"
        assert runtime._shard.isolation is None
        await runtime.ref("notes", Notes).signal(Notes.note, "x")
    assert sorted(again.calls) == ["a", "a"]


async def test_a_suspect_whose_timer_is_due_is_alone(grave):
    """What it has to handle is not in the journal yet: the attempt of another run waits all the same."""
    turns = []

    @workflow.defn
    class Sleeps:
        @workflow.run
        async def run(self) -> None:
            await workflow.sleep(0.2)
            turns.append(list(again.calls))

    one, again = gate(), gate()
    async with hosted(grave.store(), Sleeps, Calls, activities=[one.fn]) as runtime:
        await runtime.spawn(Sleeps, id="sleeps")
        await runtime.spawn(Calls, id="calls")
        await until(lambda: one.calls)
    await asyncio.sleep(0.25)
    grave.die((TURN, 1, 3), (ATTEMPT, 2, 1, 1))
    async with hosted(grave.store(), Sleeps, Calls, activities=[again.fn]) as runtime:
        await runtime.ref("sleeps", Sleeps).result()
        await until(lambda: again.calls)
        again.open.set()
        await runtime.ref("calls", Calls).result()
    assert turns[0] == []


async def test_a_run_that_is_suspect_handles_what_it_has_alone(grave):
    """It has an unread message from its last life; the others wait for it."""
    order = []

    @workflow.defn
    class Tells:
        def __init__(self) -> None:
            self.told = False

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: self.told)

        @workflow.signal
        def tell(self, name: str) -> None:
            order.append(name)
            self.told = True

    async with hosted(grave.store(), Tells) as runtime:
        for name in "abc":
            await runtime.spawn(Tells, id=name)
    async with hosted(grave.store()) as runtime:  # their type is not there: what comes is received
        for name in "abc":
            await runtime.ref(name).signal("tell", name)
    grave.die((TURN, 2, 5), (TURN, 3, 5))
    async with hosted(grave.store(), Tells) as runtime:
        for name in "abc":
            await runtime.ref(name, Tells).result()
    assert sorted(order[:2]) == ["b", "c"]
    assert order[2:] == ["a"]


async def test_a_damaged_run_keeps_nobody_from_being_judged(grave, monkeypatch):
    await begun(grave, Notes, Notes)
    grave.die((TURN, 1, 5), (TURN, 2, 5))
    real = RunIndex.row

    def row(index, key):
        if key == 1:
            raise JournalCorruptError("its row is damaged")
        return real(index, key)

    with monkeypatch.context() as patch:
        patch.setattr(RunIndex, "row", row)
        async with hosted(grave.store(), Notes) as runtime:
            history = await runtime.ref("run-2", Notes).fetch_history()
    assert len(events(history, RunBlamed)) == 1


async def test_what_starts_write_is_whole_in_the_tables(grave):
    """Payloads over the limit (here nearly all) are where the snapshots of open runs say they are."""
    await begun(grave, Notes, Calls, activities=[gate().fn])
    for number in (1, 2, 3):
        grave.die((TURN, 1, 5), waiting=[(ATTEMPT, 2, 1, number)])
        async with hosted(grave.store(), Notes, Calls, activities=[gate().fn]) as runtime:
            for extra in range(4):
                await runtime.spawn(Notes, id=f"extra-{number}-{extra}")
            await settled(runtime)
    store = grave.store()
    assert [str(problem) for problem in verify(store).problems] == []
    store.close()
    async with hosted(grave.store(), Notes, Calls, activities=[gate().fn]) as runtime:
        description = await runtime.ref("run-1", Notes).describe()
        assert "the process died 3 times" in description.failure
        [pending] = (await runtime.ref("run-2", Calls).describe()).pending_activities
        assert pending.last_failure == "AttemptLostError: the process died while the attempt was in hand"


async def test_an_attempt_that_somebody_else_completes_is_not_lost(grave):
    """Its code had returned, durably: it was not in the dead process any more."""
    tokens = []

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def asks() -> str:
        tokens.append(activity.info().task_token)
        activity.raise_complete_async()

    @workflow.defn
    class Asks:
        @workflow.run
        async def run(self) -> str:
            return await asks()

    async with hosted(grave.store(), Asks, activities=[asks]) as runtime:
        await runtime.spawn(Asks, id="asks")
        await until(lambda: tokens)
        await settled(runtime)
    grave.die(waiting=[(ATTEMPT, 1, 1, 1)])
    async with hosted(grave.store(), Asks, activities=[asks]) as runtime:
        await runtime.activity_handle(tokens[0]).complete("from outside")
        assert await runtime.ref("asks", Asks).result() == "from outside"
    assert len(tokens) == 1


async def test_what_heartbeats_have_said_goes_on_to_the_attempt_after_a_lost_one(grave):
    found = []

    @activity.defn
    async def says() -> str:
        found.append(
            (activity.info().attempt, activity.info().heartbeat_details, activity.info().last_failure)
        )
        activity.heartbeat(len(found))
        if len(found) == 1:
            await asyncio.Event().wait()
        return "said"

    @workflow.defn
    class Says:
        @workflow.run
        async def run(self) -> str:
            return await says()

    async with hosted(grave.store(), Says, activities=[says]) as runtime:
        await runtime.spawn(Says, id="says")
        await until(lambda: found)
        await settled(runtime)
    grave.die(waiting=[(ATTEMPT, 1, 1, 1)])
    async with hosted(grave.store(), Says, activities=[says]) as runtime:
        assert await runtime.ref("says", Says).result() == "said"
    [first, (attempt, details, why)] = found
    assert first == (1, (), None)
    assert (attempt, details) == (2, (1,))
    assert "the process died while the attempt was in hand" in str(why)
