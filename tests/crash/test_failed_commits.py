"""A commit that fails: every caller learns that the outcome is unknown, and a repeat is applied once."""

import asyncio
import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest
from support.stores import TroubledStore, turns

from everact import RetryPolicy, Runtime, activity, workflow
from everact.exceptions import RuntimeClosedError, WorkflowAlreadyStartedError
from everact.journal.clock import SystemClock
from everact.journal.errors import CommitUnknownError, JournalAccessError, JournalCorruptError
from everact.journal.fault_points import armed
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryStore

LIMIT = 10

#: How a commit fails, and whether it is on disk all the same.
FAILURES = {
    "journal.commit.before": False,
    "journal.commit.written": False,
    "journal.commit.after": True,
    "before": False,
    "after": True,
}
PLACES = pytest.mark.parametrize("place", FAILURES)


class World:
    """What the activities of a test do and have done."""

    def __init__(self):
        self.calls = []
        self.open = asyncio.Event()
        self.open_thread = threading.Event()
        self.loop = asyncio.get_running_loop()
        self.thread_runs = asyncio.Event()


world: World


@activity.defn
async def wait(word: str) -> str:
    info = activity.info()
    world.calls.append((word, info.idempotency_key, info.attempt))
    await world.open.wait()
    return word


@activity.defn
def wait_in_thread(word: str) -> str:
    here = world
    here.calls.append((word, activity.info().idempotency_key, activity.info().attempt))
    here.loop.call_soon_threadsafe(here.thread_runs.set)
    assert here.open_thread.wait(LIMIT)
    return word


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0.0))
async def second_time(word: str) -> str:
    info = activity.info()
    world.calls.append((word, info.idempotency_key, info.attempt))
    if info.attempt == 1:
        await world.open.wait()
        raise OSError("not yet")
    return word


@workflow.defn
class Keeper:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: "end" in self.words)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.words

    @workflow.signal
    def add(self, word: str) -> None:
        self.words.append(word)

    @workflow.update
    def put(self, word: str) -> int:
        self.words.append(word)
        return len(self.words)

    @workflow.update
    async def put_slowly(self, word: str) -> str:
        self.words.append(await wait(word))
        return f"put {word}"

    @workflow.query
    def get(self) -> list[str]:
        return self.words


@workflow.defn
class Worker:
    @workflow.run
    async def run(self, kind: str) -> str:
        if kind == "thread":
            return await workflow.execute_activity(wait_in_thread, kind)
        if kind == "retry":
            return await second_time(kind)
        if kind == "timer":
            await workflow.sleep(0.001)
            return kind
        return await wait(kind)


@workflow.defn
class Napper:
    def __init__(self) -> None:
        self.may_go = False

    @workflow.run
    async def run(self) -> str:
        await workflow.sleep(60)
        await workflow.wait_condition(lambda: self.may_go)
        return "slept"

    @workflow.signal
    def go(self) -> None:
        self.may_go = True


WORKFLOWS = [Keeper, Worker, Napper]
ACTIVITIES = [wait, wait_in_thread, second_time]


@pytest.fixture
async def store(tmp_journal):
    global world
    world = World()
    store = TroubledStore(LmdbStore(tmp_journal, durability="os"))
    yield store
    store.close()


@pytest.fixture
async def runtime(store):
    async with (
        Runtime(store, workflows=WORKFLOWS, activities=ACTIVITIES, grace=timedelta(0)) as runtime,
        asyncio.timeout(LIMIT),
    ):
        yield runtime
        world.open.set()
        world.open_thread.set()


@contextmanager
def next_commit_fails(store, place, times=1):
    """The next commits fail at a place of ``FAILURES``."""
    if "." not in place:
        store.failures[:] = [place] * times
        yield
        assert store.failures == [], "no commit has failed"
        return
    left = times

    def fail():
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError("the disk is on fire")

    with armed(place, fail):
        yield
    assert left <= 0, "no commit has failed"


async def both(*calls):
    """Make calls at once; returns what each returned or raised."""
    return await asyncio.gather(*calls, return_exceptions=True)


def kinds(answers):
    return [type(answer) for answer in answers]


async def requests(ref):
    """Request ids in a run's history, in order."""
    return [e.fields["request_id"] for e in await ref.fetch_history() if e.fields.get("request_id")]


@PLACES
async def test_every_caller_gets_the_error_and_a_repeat_is_applied_once(runtime, store, place):
    refs = [await runtime.spawn(Keeper, id=f"k{n}") for n in range(4)]

    def calls():
        return [
            refs[0].tell(Keeper.add, "told", request_id="r0"),
            refs[1].ask(Keeper.put, "asked", request_id="r1"),
            refs[2].cancel(),
            runtime.spawn(Keeper, id="new", request_id="r3"),
            refs[3].tell(Keeper.add, "end", request_id="r4"),
            refs[3].result(),
        ]

    with next_commit_fails(store, place):
        answers = await both(*calls())
    assert kinds(answers) == [CommitUnknownError] * 6
    assert all("request_id" in str(error) for error in answers)
    told, asked, _cancelled, new, *end = await both(*calls())
    assert (told, asked, new.workflow_id, end) == (None, 1, "new", [None, ["end"]])
    assert await refs[0].query(Keeper.get) == ["told"]
    assert await refs[1].query(Keeper.get) == ["asked"]
    assert await requests(refs[0]) == ["r0"]
    assert await requests(refs[1]) == ["r1"]
    assert await requests(refs[3]) == ["r4"]
    assert [run.workflow_id for run in await runtime.list_workflows()].count("new") == 1


@PLACES
async def test_what_waits_behind_the_failed_commit_fails_with_it(runtime, store, place):
    first, second = [await runtime.spawn(Keeper, id=name) for name in ("first", "second")]
    store.hold()
    flying = asyncio.create_task(first.tell(Keeper.add, "x", request_id="x"))
    await store.held()
    queued = asyncio.create_task(second.tell(Keeper.add, "y", request_id="y"))
    seen = asyncio.create_task(second.query(Keeper.get))
    new = asyncio.create_task(runtime.spawn(Keeper, id="new"))
    await turns()
    with next_commit_fails(store, place):
        store.release()
        answers = await both(flying, queued, seen, new)
    assert kinds(answers) == [CommitUnknownError] * 4
    assert await second.query(Keeper.get) == []
    assert await first.query(Keeper.get) == (["x"] if FAILURES[place] else [])
    await both(first.tell(Keeper.add, "x", request_id="x"), second.tell(Keeper.add, "y", request_id="y"))
    assert await first.query(Keeper.get) == ["x"]
    assert await second.query(Keeper.get) == ["y"]
    assert (await runtime.spawn(Keeper, id="new")).workflow_id == "new"


@PLACES
async def test_an_update_in_flight_is_not_left_hanging_nor_given_anothers_answer(runtime, store, place):
    ref = await runtime.spawn(Keeper, id="k")
    with next_commit_fails(store, place):
        lost = asyncio.create_task(ref.ask(Keeper.put_slowly, "lost", request_id="lost"))
        await both(ref.tell(Keeper.add, "beside"))
    other = asyncio.create_task(ref.ask(Keeper.put_slowly, "other", request_id="other"))
    await turns()
    world.open.set()
    assert await other == "put other"
    answer = (await both(lost))[0]
    if isinstance(answer, CommitUnknownError):
        assert await ref.ask(Keeper.put_slowly, "lost", request_id="lost") == "put lost"
    else:
        assert answer == "put lost"
    assert await requests(ref) in (["lost", "other"], ["other", "lost"])


@PLACES
async def test_an_update_accepted_before_gets_its_answer_after(runtime, store, place):
    ref = await runtime.spawn(Keeper, id="k")
    accepted = asyncio.create_task(ref.ask(Keeper.put_slowly, "early"))
    other = await runtime.spawn(Keeper, id="other")
    with next_commit_fails(store, place):
        assert kinds(await both(other.tell(Keeper.add, "x"))) == [CommitUnknownError]
    assert not accepted.done()
    world.open.set()
    assert await accepted == "put early"
    assert [call[0] for call in world.calls] == ["early"]


@PLACES
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_results_of_running_attempts_are_taken_after_it(runtime, store, place, kind):
    worker = await runtime.spawn(Worker, kind, id="worker")
    keeper = await runtime.spawn(Keeper, id="k")
    if kind == "thread":
        await world.thread_runs.wait()
    with next_commit_fails(store, place):
        assert kinds(await both(keeper.tell(Keeper.add, "x"))) == [CommitUnknownError]
    world.open.set()
    world.open_thread.set()
    assert await worker.result() == kind
    assert len(world.calls) == 1


@PLACES
async def test_a_result_in_hand_outlives_the_turn_that_was_lost(runtime, store, place):
    worker = await runtime.spawn(Worker, "async", id="worker")
    await turns()
    with next_commit_fails(store, place):
        world.open.set()
        answer = (await both(worker.result()))[0]
    assert type(answer) is CommitUnknownError
    assert await worker.result() == "async"
    assert len(world.calls) == 1, "it is paid for"


async def test_a_result_that_waits_in_the_mailbox_counts_once(runtime, store):
    """It is paid for: the rebuilt run gets it without asking again."""
    ref = await runtime.spawn(Keeper, id="k")
    update = asyncio.create_task(ref.ask(Keeper.put_slowly, "x"))
    other = await runtime.spawn(Keeper, id="other")
    assert len(world.calls) == 1
    store.hold()
    flying = asyncio.create_task(other.tell(Keeper.add, "x"))
    await store.held()
    store.failures.append("before")
    world.open.set()
    store.release()
    # The writer has reported before the loop goes on: the failure comes between the result and its turn.
    runtime._shard.writer._thread.join()
    assert kinds(await both(flying)) == [CommitUnknownError]
    assert await update == "put x"
    await turns()
    assert len(world.calls) == 1
    assert [e.kind for e in await ref.fetch_history()].count("ActivityCompleted") == 1
    assert await ref.query(Keeper.get) == ["x"]


@PLACES
async def test_a_failed_attempt_in_hand_outlives_the_turn_that_was_lost(runtime, store, place):
    worker = await runtime.spawn(Worker, "retry", id="worker")
    await turns()
    with next_commit_fails(store, place):
        world.open.set()
        assert await worker.result() == "retry"
    attempts = [attempt for _word, _key, attempt in world.calls]
    assert attempts == [1, 2]


@PLACES
async def test_a_timer_that_fired_in_it_fires_again(runtime, store, place):
    store.hold()
    spawned = asyncio.create_task(runtime.spawn(Worker, "timer", id="worker"))
    await store.held()
    store.release()
    worker = await spawned
    with next_commit_fails(store, place):
        assert type((await both(worker.result()))[0]) is CommitUnknownError
    assert await worker.result() == "timer"
    kinds = [event.kind for event in await worker.fetch_history()]
    assert kinds == ["WorkflowStarted", "TimerStarted", "TimerFired", "WorkflowCompleted"]


class ManualClock(SystemClock):
    """Wall time moves only when a test says so."""

    def __init__(self):
        self.now = super().wall()

    def wall(self):
        return self.now


async def test_a_timer_that_waits_in_the_mailbox_fires_once(store):
    """The rebuilt run arms it again, and it is due: the second firing finds no timer."""
    clock = ManualClock()
    async with asyncio.timeout(LIMIT), Runtime(store, workflows=WORKFLOWS, clock=clock) as runtime:
        ref = await runtime.spawn(Napper, id="napper")
        other = await runtime.spawn(Keeper, id="other")
        store.hold()
        flying = asyncio.create_task(other.tell(Keeper.add, "x"))
        await store.held()
        store.failures.append("before")
        store.release()
        # The writer has reported before the loop goes on: the failure comes between the firing and its turn.
        runtime._shard.writer._thread.join()
        clock.now += 3_600_000_000
        runtime._shard.timers.check()
        assert kinds(await both(flying)) == [CommitUnknownError]
        await turns()
        runtime._shard.timers.check()
        await ref.tell(Napper.go)
        assert await ref.result() == "slept"
        assert [event.kind for event in await ref.fetch_history()].count("TimerFired") == 1


@PLACES
async def test_ended_runs_answer_after_it(runtime, store, place):
    ref = await runtime.spawn(Keeper, id="ended")
    await ref.tell(Keeper.add, "x", request_id="x")
    await ref.tell(Keeper.add, "end")
    other = await runtime.spawn(Keeper, id="other")
    with next_commit_fails(store, place):
        await both(other.tell(Keeper.add, "x"))
    assert await ref.result() == ["x", "end"]
    assert await ref.query(Keeper.get) == ["x", "end"]
    assert (await ref.describe()).status == "completed"
    await ref.tell(Keeper.add, "x", request_id="x")
    assert kinds(await both(runtime.spawn(Keeper, id="ended", if_closed="refuse"))) == [
        WorkflowAlreadyStartedError
    ]


@PLACES
async def test_a_start_that_was_lost_leaves_its_id_free(runtime, store, place):
    with next_commit_fails(store, place):
        assert kinds(await both(runtime.spawn(Keeper, id="new"))) == [CommitUnknownError]
    assert await runtime.count_workflows() == FAILURES[place]
    again = await both(runtime.spawn(Keeper, id="new"))
    assert kinds(again) == [WorkflowAlreadyStartedError] or not FAILURES[place]
    assert await runtime.count_workflows() == 1
    assert await runtime.ref("new", Keeper).ask(Keeper.put, "x") == 1


@PLACES
async def test_several_failures_in_a_row(runtime, store, place):
    ref = await runtime.spawn(Keeper, id="k")
    with next_commit_fails(store, place, times=3):
        for word in ("a", "b", "c"):
            answer = (await both(ref.tell(Keeper.add, word, request_id=word)))[0]
            assert type(answer) is CommitUnknownError
    await both(*(ref.tell(Keeper.add, word, request_id=word) for word in ("a", "b", "c", "end")))
    assert await ref.result() == ["a", "b", "c", "end"]


async def test_mail_for_a_run_that_never_was_is_answered(runtime, store):
    """Calls that found the reserved run, and were still in its mailbox when its start was thrown away."""
    keeper = await runtime.spawn(Keeper, id="k")
    store.hold()
    flying = asyncio.create_task(keeper.tell(Keeper.add, "x"))
    await store.held()
    ref = runtime.ref("new", Keeper)
    store.failures.append("before")
    calls = [
        asyncio.create_task(call)
        for call in (
            runtime.spawn(Keeper, id="new"),
            ref.describe(),
            ref.fetch_history(),
            ref.query(Keeper.get),
            ref.tell(Keeper.add, "x"),
            ref.result(),
            runtime.spawn(Keeper, id="new", if_running="attach"),
        )
    ]
    store.release()
    # The writer has reported before the loop goes on: the failure comes between the calls and their turns.
    runtime._shard.writer._thread.join()
    assert kinds(await both(flying, *calls)) == [CommitUnknownError] * 8
    assert await runtime.count_workflows() == 1


# --- when the journal cannot be opened again


REOPENING = {
    "system": lambda store: store.reopen_errors.append(OSError("no disk any more")),
    "reading": lambda store: store.scan_errors.append(JournalCorruptError("record 1 is damaged")),
}


@pytest.mark.parametrize("trouble", REOPENING)
async def test_a_runtime_without_a_journal_stops_and_says_so(store, trouble):
    runtime = Runtime(store, workflows=WORKFLOWS, activities=ACTIVITIES, grace=timedelta(seconds=LIMIT))
    async with asyncio.timeout(LIMIT), runtime:
        ref = await runtime.spawn(Keeper, id="k")
        worker = await runtime.spawn(Worker, "async", id="worker")
        sleeper = await runtime.spawn(Worker, "thread", id="sleeper")
        await world.thread_runs.wait()
        waiting = [
            asyncio.create_task(call)
            for call in (ref.result(), worker.result(), ref.ask(Keeper.put_slowly, "x"), sleeper.result())
        ]
        await turns()
        REOPENING[trouble](store)
        store.failures.append("before")
        first = await both(ref.tell(Keeper.add, "x"), *waiting)
        world.open_thread.set()
        assert kinds(first) == [CommitUnknownError] * 5
        later = await both(
            runtime.spawn(Keeper),
            runtime.execute(Keeper),
            ref.tell(Keeper.add, "x"),
            ref.ask(Keeper.put, "x"),
            ref.query(Keeper.get),
            ref.describe(),
            ref.fetch_history(),
            ref.result(),
            ref.cancel(),
            ref.terminate(),
            runtime.list_workflows(),
            runtime.count_workflows(),
        )
        assert kinds(later) == [CommitUnknownError] * 12
        assert all(error.__cause__ is not None for error in later)
    assert kinds(await both(ref.tell(Keeper.add, "x"))) == [RuntimeClosedError]


async def test_a_journal_that_cannot_be_opened_just_now_answers_and_then_goes_on(store, monkeypatch, caplog):
    monkeypatch.setattr("everact.actors.rebuilding.FIRST_PAUSE", 0.002)
    monkeypatch.setattr("everact.actors.rebuilding.LONGEST_PAUSE", 0.004)
    async with (
        asyncio.timeout(LIMIT),
        Runtime(store, workflows=WORKFLOWS, activities=ACTIVITIES) as runtime,
    ):
        ref = await runtime.spawn(Keeper, id="k")
        worker = await runtime.spawn(Worker, "async", id="worker")
        await turns()
        result = asyncio.create_task(worker.result())
        await turns()
        store.reopen_errors = [JournalAccessError("Read-only file system")] * 1000
        store.failures.append("before")
        failing = asyncio.create_task(ref.tell(Keeper.add, "lost"))
        await turns()
        (lost,) = await both(failing)
        assert type(lost) is CommitUnknownError
        world.open.set()  # a result comes in
        calls = [
            lambda: runtime.spawn(Keeper),
            lambda: ref.tell(Keeper.add, "x"),
            lambda: ref.ask(Keeper.put, "x"),
            lambda: ref.query(Keeper.get),
            ref.describe,
            ref.cancel,
            ref.terminate,
            runtime.count_workflows,
        ]
        refused = await both(*(call() for call in calls))
        assert kinds(refused) == [JournalAccessError] * 8
        assert str(refused[0]) == (
            f"the journal {store.path!r} cannot be opened just now; nothing was written. It is tried again by itself: "
            f"Read-only file system"
        )
        assert not result.done()
        store.reopen_errors = []
        assert await result == "async"
        assert await ref.query(Keeper.get) == []
        await ref.tell(Keeper.add, "kept")
        assert await ref.query(Keeper.get) == ["kept"]
        assert await runtime.count_workflows() == 2
    assert [attempt for _word, _key, attempt in world.calls] == [1]
    for text in ("cannot be opened again just now", "is open again"):
        assert caplog.text.count(text) == 1


async def test_what_was_acknowledged_is_there_after_a_stop(store, tmp_journal):
    async with asyncio.timeout(LIMIT):
        async with Runtime(store, workflows=WORKFLOWS, activities=ACTIVITIES) as runtime:
            ref = await runtime.spawn(Keeper, id="k")
            await ref.tell(Keeper.add, "kept")
            store.reopen_errors.append(OSError("no disk any more"))
            store.failures.append("before")
            await both(ref.tell(Keeper.add, "x"))
        async with Runtime(tmp_journal, workflows=WORKFLOWS, activities=ACTIVITIES) as runtime:
            assert await runtime.ref("k", Keeper).query(Keeper.get) == ["kept"]


@pytest.mark.parametrize("reopens", [True, False])
@pytest.mark.parametrize("failure", ["before", "after"])
async def test_leaving_while_a_commit_fails_answers_everybody(reopens, failure):
    global world
    world = World()
    store = TroubledStore(MemoryStore())
    runtime = Runtime(store, workflows=WORKFLOWS, activities=ACTIVITIES)
    async with asyncio.timeout(LIMIT):
        await runtime.__aenter__()
        ref, other = [await runtime.spawn(Keeper, id=name) for name in ("k", "other")]
        store.hold()
        calls = [asyncio.create_task(ref.tell(Keeper.add, "flying"))]
        await store.held()
        calls += [
            asyncio.create_task(call)
            for call in (
                ref.tell(Keeper.add, "queued"),
                ref.ask(Keeper.put_slowly, "slow"),
                ref.result(),
                runtime.spawn(Keeper, id="new"),
            )
        ]
        await turns()
        leaving = asyncio.create_task(runtime.__aexit__(None, None, None))
        calls.append(asyncio.create_task(other.tell(Keeper.add, "late")))
        await turns()
        store.failures.append(failure)
        if not reopens:
            store.reopen_errors.append(OSError("no disk any more"))
        store.release()
        await leaving
        answers = await both(*calls)
    assert all(isinstance(answer, CommitUnknownError | RuntimeClosedError) for answer in answers), answers
