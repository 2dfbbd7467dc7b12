"""Slots, threads and deadlines of the activity pool, and calls that two runtimes make at once."""

import asyncio
import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.clock import ManualClock
from support.hosting import gate, hosted, settled, until

from everact import RetryPolicy, activity, workflow
from everact.actors import attempts
from everact.actors.attempts import AttemptDeadlines
from everact.actors.call_codec import CallCodec
from everact.actors.thread_pool import ThreadPool
from everact.exceptions import WorkflowFailedError
from everact.journal.errors import PayloadDecodeError
from everact.journal.memory_store import MemoryJournal
from everact.journal.payloads import PayloadConverter

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0)


@activity.defn
async def nothing() -> int:
    return 1


@activity.defn(retry_policy=QUICK)
def in_thread() -> int:
    return 1


@workflow.defn
class Calls:
    @workflow.run
    async def run(self, name: str, times: int = 1) -> int:
        made = (workflow.execute_activity(name) for _ in range(times))
        return sum(await asyncio.gather(*made))


# --- slots --------------------------------------------------------------------------------------------------------


async def test_an_attempt_that_is_withdrawn_before_it_begins_gives_its_slot_back():
    """As when a commit fails, and the runs are built again in the same callback."""
    options = {"activities": [nothing], "max_concurrent_activities": 1}
    async with hosted(MemoryJournal(), Calls, **options) as runtime:
        pool = runtime._shard.dispatcher.pool
        submit = pool.submit

        def submit_and_withdraw(attempt):
            pool.submit = submit
            submit(attempt)
            pool.withdraw(attempt)
            pool.withdraw(attempt)

        pool.submit = submit_and_withdraw
        await runtime.spawn(Calls, "nothing")
        await settled(runtime)
        assert (pool._free_async, pool._running) == (1, set())
        assert await runtime.execute(Calls, "nothing") == 1
        assert (pool._free_async, pool._running) == (1, set())


async def test_an_attempt_whose_task_somebody_else_cancels_before_it_begins_ends_with_its_limit():
    options = {"activities": [nothing], "max_concurrent_activities": 1}

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> int:
            limits = {"start_to_close_timeout": timedelta(milliseconds=20), "retry_policy": QUICK}
            return await workflow.execute_activity(nothing, **limits)

    async with hosted(MemoryJournal(), W, **options) as runtime:
        pool = runtime._shard.dispatcher.pool
        submit = pool.submit

        def submit_and_cancel(attempt):
            pool.submit = submit
            submit(attempt)
            attempt.task.cancel()

        pool.submit = submit_and_cancel
        assert await runtime.execute(W) == 1, "by its second attempt"
        assert (pool._free_async, pool._running) == (1, set())


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
async def test_an_attempt_for_which_there_is_no_thread_fails_and_is_tried_again(error, monkeypatch):
    start = threading.Thread.start
    refused = []

    def refuse(self):
        if not self.name.startswith("everact-activity") or len(refused) == 2:
            return start(self)
        refused.append(self.name)
        raise error

    monkeypatch.setattr(threading.Thread, "start", refuse)
    options = {"activities": [in_thread], "max_activity_threads": 1}
    async with hosted(MemoryJournal(), Calls, **options) as runtime:
        handle = await runtime.spawn(Calls, "in_thread", 2)
        assert await handle.result() == 2
        events = [e.event for e in await handle.fetch_history() if e.kind == "AttemptFailed"]
        assert [e.failure.type for e in events] == [type(error).__name__] * 2
        assert runtime._shard.dispatcher.pool.threads._free == 1
    assert len(refused) == 2


async def test_without_further_attempts_the_lack_of_threads_fails_the_activity(monkeypatch):
    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    def once() -> int:
        return 1

    start = threading.Thread.start

    def refuse(self):
        if self.name.startswith("everact-activity"):
            raise RuntimeError("can't start new thread")
        start(self)

    options = {"activities": [once], "max_activity_threads": 1}
    async with hosted(MemoryJournal(), Calls, **options) as runtime:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(WorkflowFailedError, match="RuntimeError: can't start new thread"):
            await runtime.execute(Calls, "once")
        monkeypatch.undo()
        assert await runtime.execute(Calls, "once") == 1


async def test_there_are_never_more_threads_than_the_limit():
    options = {"activities": [in_thread], "max_activity_threads": 4}
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # between "the slot is free" and "the thread is free" as often as possible
    try:
        async with hosted(MemoryJournal(), Calls, **options) as runtime:
            for _ in range(5):
                assert await runtime.execute(Calls, "in_thread", 100) == 100
            assert runtime._shard.dispatcher.pool.threads._threads._names <= 4
    finally:
        sys.setswitchinterval(switch)


def test_a_thread_takes_work_that_is_submitted_when_it_tells_of_its_end():
    pool, threads, done = ThreadPool(), [], threading.Event()

    def work(worker):
        threads.append(threading.current_thread())
        return done.set if len(threads) == 50 else lambda: pool.submit(work)

    pool.submit(work)
    assert done.wait(10)
    assert len(threads) == 50 and len(set(threads)) == 1
    pool.close()
    threads[0].join(10)
    assert not threads[0].is_alive()


def test_an_idle_thread_keeps_nothing_alive():
    class Large:
        pass

    pool, told = ThreadPool(), threading.Event()
    large = Large()
    alive = weakref.ref(large)

    def work(worker, large=large):
        return told.set

    pool.submit(work)
    assert told.wait(10)
    del work, large
    (worker,) = pool._workers
    while alive() is not None:  # the test's time limit ends this
        gc.collect()
    pool.close()
    worker.thread.join(10)


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit"])
async def test_a_thread_survives_an_error_whose_text_raises_anything(raised):
    kind = {"KeyboardInterrupt": KeyboardInterrupt, "SystemExit": SystemExit}[raised]
    left = [1]

    class Rude(Exception):
        def __str__(self):
            if left:
                left.clear()
                raise kind
            return "polite"

    @activity.defn(retry_policy=QUICK)
    def rude() -> int:
        if activity.info().attempt == 1:
            raise Rude
        return 1

    options = {"activities": [rude], "max_activity_threads": 1}
    async with hosted(MemoryJournal(), Calls, **options) as runtime:
        assert await runtime.execute(Calls, "rude") == 1
        assert runtime._shard.dispatcher.pool.threads._free == 1


# --- deadlines ----------------------------------------------------------------------------------------------------


class attempt_of:
    def __init__(self, seconds):
        self.scheduled = SimpleNamespace(start_to_close=int(seconds * 1_000_000))


class Timers:
    """The part of a loop that deadlines use."""

    def __init__(self):
        self.timers = []

    def call_later(self, delay, callback):
        handle = SimpleNamespace(delay=delay, callback=callback)
        handle.cancel = lambda: handle in self.timers and self.timers.remove(handle)
        self.timers.append(handle)
        return handle

    def fire(self):
        (handle,) = self.timers
        self.timers.clear()
        handle.callback()


@pytest.fixture
def deadlines():
    clock, loop, expired = ManualClock(), Timers(), []
    return SimpleNamespace(
        clock=clock, loop=loop, expired=expired, of=AttemptDeadlines(loop, clock, expired.append)
    )


def test_one_timer_serves_all_lengths_and_none_is_left_when_nothing_runs(deadlines):
    running = [attempt_of(3600 - n / 1000) for n in range(200)]
    for attempt in running:
        deadlines.of.start(attempt)
    assert [timer.delay for timer in deadlines.loop.timers] == [attempts.RECHECK]
    for attempt in running:
        deadlines.of.stop(attempt)
    assert not deadlines.of._queues
    deadlines.clock.advance(1)
    deadlines.loop.fire()
    assert not deadlines.loop.timers and not deadlines.expired


def test_the_soonest_deadline_is_kept_whatever_came_before_it(deadlines):
    long, short, shorter = attempt_of(50), attempt_of(0.5), attempt_of(0.25)
    for attempt in (long, short, shorter):
        deadlines.of.start(attempt)
    assert [timer.delay for timer in deadlines.loop.timers] == [0.25]
    deadlines.clock.advance(0.25)
    deadlines.loop.fire()
    assert deadlines.expired == [shorter]
    assert [timer.delay for timer in deadlines.loop.timers] == [0.25]
    deadlines.clock.advance(100)
    deadlines.loop.fire()
    assert set(deadlines.expired) == {shorter, short, long}
    assert not deadlines.loop.timers and not deadlines.of._queues


def test_a_deadline_whose_taker_raises_does_not_stop_the_others(deadlines):
    first, second = attempt_of(1), attempt_of(1)

    def take(attempt):
        deadlines.expired.append(attempt)
        if attempt is first:
            raise RuntimeError("broken")

    deadlines.of._expired = take
    deadlines.of.start(first)
    deadlines.of.start(second)
    deadlines.clock.advance(1)
    with pytest.raises(RuntimeError):
        deadlines.loop.fire()
    deadlines.loop.fire()
    assert deadlines.expired == [first, second]


def test_closed_deadlines_leave_no_timer(deadlines):
    deadlines.of.start(attempt_of(5))
    deadlines.of.close()
    assert not deadlines.loop.timers and not deadlines.of._queues


async def test_a_finished_activity_leaves_no_timer_for_the_rest_of_its_limit(monkeypatch):
    monkeypatch.setattr(attempts, "RECHECK", 0.01)
    held = gate(start_to_close_timeout=timedelta(hours=1))

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            return await workflow.execute_activity(held.fn, "x")

    async with hosted(MemoryJournal(), W, activities=[held.fn]) as runtime:
        handle = await runtime.spawn(W)
        await until(lambda: held.calls)
        deadlines = runtime._shard.dispatcher.pool.deadlines
        await asyncio.sleep(0.05)
        assert deadlines._timer is not None, "it goes on looking"
        held.open.set()
        assert await handle.result() == "through"
        await until(lambda: deadlines._timer is None)


# --- two runtimes, one function ---------------------------------------------------------------------------------------


class Opaque:
    """No stored form but a pickle."""


def takes_anything(value: object, more: object = None) -> object:
    return value


def test_a_codec_is_made_ready_once_for_each_of_two_converters(monkeypatch):
    codec = CallCodec(takes_anything, "activity takes_anything")
    made = []
    make = CallCodec._make
    monkeypatch.setattr(
        CallCodec, "_make", lambda self, converter: made.append(converter) or make(self, converter)
    )
    trusting, careful = PayloadConverter(trust_pickle=True), PayloadConverter()
    for _ in range(10):
        for converter in (trusting, careful):
            payloads, _ = codec.encode_args(converter, (1, 2))
            assert codec.decode_args(converter, payloads) == ([1, 2], {})
            assert codec.result_decoder(converter)(codec.encode_result(converter, 3)) == 3
    assert made == [trusting, careful]


def test_a_codec_does_not_collect_converters():
    codec = CallCodec(takes_anything, "activity takes_anything")
    seen = [PayloadConverter() for _ in range(100)]
    alive = [weakref.ref(converter) for converter in seen]
    for converter in seen:
        codec.encode_args(converter, (1,))
    del seen, converter
    gc.collect()
    assert sum(ref() is not None for ref in alive) <= 8


def test_threads_of_two_runtimes_never_get_each_others_converter():
    """One trusts pickles, the other must never read one."""
    codec = CallCodec(takes_anything, "activity takes_anything")
    trusting, careful = PayloadConverter(trust_pickle=True), PayloadConverter()
    pickled = codec.encode_result(trusting, Opaque())
    plain = codec.encode_result(careful, 1)

    def trust():
        for _ in range(1500):
            assert type(codec.decode_args(trusting, (pickled,))[0][0]) is Opaque
            assert type(codec.decode_result(trusting, pickled)) is Opaque
            codec.encode_args(trusting, (Opaque(),))

    def distrust():
        for _ in range(1500):
            assert codec.decode_args(careful, (plain,)) == ([1], {})
            with pytest.raises(PayloadDecodeError, match="pickle"):
                codec.decode_result(careful, pickled)
            with pytest.raises(PayloadDecodeError, match="pickle"):
                codec.decode_args(careful, (pickled,))

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for job in [pool.submit(fn) for fn in (trust, distrust, trust, distrust)]:
                job.result()
    finally:
        sys.setswitchinterval(switch)


@pytest.mark.parametrize("waits_first", [False, True])
async def test_code_that_raises_generator_exit_has_failed_at_once(waits_first):
    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=2, initial_interval=0.001))
    async def ends_oddly() -> int:
        if waits_first:
            await asyncio.sleep(0)
        raise GeneratorExit("mine")

    async with hosted(MemoryJournal(), Calls, activities=[ends_oddly]) as runtime:
        with pytest.raises(WorkflowFailedError, match=r"failed after 2 attempts .*: GeneratorExit: mine"):
            await runtime.execute(Calls, "ends_oddly")
        assert runtime.activity_slots().running == 0
