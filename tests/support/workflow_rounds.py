"""Random workflows against the model: ``make model``, or ``python -m support.workflow_rounds --examples 1000``.

Each example runs one program (``workflow_programs``) in a runtime and in the model, with messages, time,
failed commits, restarts and evictions in between, and compares all that can be seen. At the end its history
is replayed; with ``--keep`` histories are left for another process, under another hash seed, to replay
(``--replay``).
"""

import argparse
import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import ClassVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from everact import Runtime
from everact.actors import loading, passivation, restarts
from everact.actors.definitions import activity_definition, workflow_definition
from everact.actors.event_loop import TurnAborted
from everact.actors.replay import replay
from everact.actors.workflow_instance import WorkflowCrashedError, WorkflowInstance
from everact.exceptions import (
    CommitUnknownError,
    UpdateCutError,
    UpdateFailedError,
    WorkflowCancelledError,
    WorkflowClosedError,
)
from everact.journal import blob_table, blobs, compaction, run_index, snapshots
from everact.journal.events import decode_record, encode_record
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.payloads import PayloadConverter
from everact.supervision.backoff import Backoff
from everact.supervision.strategies import RestartLimit

from .clock import SECOND, ManualClock
from .stores import TroubledStore
from .workflow_model import Model
from .workflow_programs import Interpreted, Outside, Part, act, gated, outsides, programs, timed

ACTIVITIES = (act, gated)
#: Seconds after which an example counts as hanging.
LIMIT = 20
#: Rounds of the loop in which nothing happens before the runtime counts as idle.
QUIET = 4

actions = st.lists(
    st.one_of(
        st.just(("advance",)),
        st.just(("tell",)),
        st.just(("ask",)),
        st.just(("burst",)),
        st.just(("noise",)),
        st.just(("restart",)),
        st.just(("look",)),
        st.just(("cancel",)),
        st.tuples(st.just("open"), st.integers(0, 2)),
        st.tuples(
            st.just("fail"),
            st.sampled_from(["before", "after"]),
            st.sampled_from(["ask", "tell", "burst", "noise", "advance", "cancel"]),
        ),
        st.tuples(
            st.just("paused"),
            st.sampled_from(["ask", "tell", "advance", "cancel", "look", "restart", "noise"]),
            st.booleans(),
        ),
        st.tuples(
            st.just("crash"),
            st.sampled_from(["ask", "tell", "burst", "advance", "cancel", "look"]),
            st.booleans(),
        ),
    ),
    min_size=2,
    max_size=16,
)


class Crashing(WorkflowInstance):
    """The code of a run whose next live turn crashes at its end, when somebody has asked for that."""

    __slots__ = ()
    left: ClassVar[dict[asyncio.AbstractEventLoop, bool]] = {}

    def turn(self, at, deliveries):
        outputs = super().turn(at, deliveries)
        if self.left and not self.replaying and self.started.workflow_id == "run":
            self.left.clear()
            raise WorkflowCrashedError("quarantined", TurnAborted("as the script says"))
        return outputs


#: Sizes so small that every example passes through the tables, and nearly every payload becomes a blob.
SMALL = [
    (compaction, "WINDOW", 3),
    (compaction, "WINDOW_PER_RUN", 0),
    (compaction, "SAMPLES", 20),
    (compaction, "CROWD", 6),
    (run_index, "CROWD", 6),
    (blobs, "SPILL", 12),
    (blob_table, "CHUNK", 50),
    (snapshots, "SPILL", 12),
    (loading, "WorkflowInstance", Crashing),
    (restarts, "LIMIT", RestartLimit(backoff=Backoff(first=0.0, longest=0.0))),
]


class Round:
    """One program in a runtime, side by side with its model."""

    def __init__(self, steps, cached):
        self.steps = steps
        self.cached = cached
        self.model = Model(steps)
        self.clock = ManualClock()
        self.journal = MemoryJournal()
        self.outside = Outside()
        self.signals = self.updates = 0
        self.asked = {}
        self.lost = set()
        self.is_cancelled = False
        self.is_paused = False

    async def enter(self):
        self.store = TroubledStore(MemoryStore(self.journal))
        self.runtime = Runtime(
            self.store,
            workflows=[Interpreted, Part],
            activities=ACTIVITIES,
            clock=self.clock,
            grace=0,
            max_cached_workflows=1000,
        )
        shard_of = passivation.Passivation.__init__
        passivation.Passivation.__init__ = lambda it, shard, _limit: shard_of(it, shard, self.cached)
        try:
            await self.runtime.__aenter__()
        finally:
            passivation.Passivation.__init__ = shard_of

    async def leave(self):
        await self.runtime.__aexit__(None, None, None)

    @property
    def run(self):
        return self.runtime.ref("run", Interpreted)

    # --- idle, and time

    async def settle(self):
        """Let the runtime do all that needs no time, retries included."""
        while True:
            await self._quiet()
            deadline = self._next(retries_only=True)
            if deadline is None:
                return
            self._pass(deadline)

    async def _quiet(self):
        quiet, before = 0, None
        while quiet < QUIET:
            await self._rebuilt()
            await self.runtime._shard.idle()
            await asyncio.sleep(0)
            now = (self.store.position, dict(self.outside.calls))
            quiet, before = (quiet + 1, now) if now == before else (0, now)

    async def _rebuilt(self):
        """After the second failure in a row the runtime pauses before it reads the journal again."""
        shard = self.runtime._shard
        while shard.writer.error is not None or shard.rebuilding.is_running:
            await asyncio.sleep(0.001)

    def _next(self, *, retries_only=False):
        """When the next entry of the runtime's timers falls due that still has a purpose."""
        found = []
        for deadline, _order, due, alive, owner, command in self.runtime._shard.timers._heap:
            is_retry = due == self.runtime._shard.dispatcher.dispatch
            if alive(owner, command) and (is_retry or not retries_only):
                found.append(deadline)
        return min(found, default=None)

    def _pass(self, until):
        self.clock.advance(max(0, until - self.clock.wall()) / SECOND)
        self.runtime._shard.timers.check()

    async def advance(self):
        """Let time pass to the next deadline of the model, in both."""
        deadline = self.model.loop.next_deadline()
        if deadline is None:
            return
        # Retries took some microseconds that the model does not know: what was due then is due so much later.
        ahead = self.clock.wall() - self.began - round(self.model.loop.time() * SECOND)
        self.drift = max(self.drift, ahead)
        assert 0 <= ahead <= self.drift < 1000, "the clocks have moved apart"
        at = self.began + round(deadline * SECOND)
        self.model.loop.advance(deadline)
        while (due := self._next()) is not None and due <= at + self.drift:
            self._pass(due)
            await self.settle()
        self._pass(max(at, self.clock.wall()))
        await self.settle()

    # --- what is done

    async def play(self, script):
        outsides[asyncio.get_running_loop()] = self.outside
        await self.enter()
        try:
            self.began, self.drift = self.clock.wall(), 0
            await self.runtime.spawn(Interpreted, self.steps, id="run", request_id="start")
            await self.runtime.spawn(Interpreted, [["wait", 10_000]], id="other")
            await self.settle()
            await self.compare()
            for name, *args in script:
                if self.model.is_over:
                    break
                await getattr(self, name)(*args)
                await self.settle()
                await self.compare()
            await self.finish()
            return (await self.run.fetch_history()).records
        finally:
            for task in self.asked.values():
                task.cancel()
            await self.leave()
            self.model.close()

    async def finish(self):
        """Give the program all that it may wait for, until it ends."""
        for gate in range(3):
            await self.open(gate)
            await self.settle()
        while not self.model.is_over:
            if self.model.loop.next_deadline() is not None:
                await self.advance()
            else:
                await self.tell()
                await self.settle()
            assert self.signals < 50, "the model waits for nothing that comes"
        await self.compare()
        self.store.failures.clear()
        await self.restart()
        await self.settle()
        await self.compare()

    async def _send(self, call, request_id):
        """Send until it is acknowledged; a repeat is applied once."""
        while True:
            try:
                return await call(request_id=request_id)
            except CommitUnknownError:
                await self._rebuilt()

    async def tell(self):
        self.signals += 1
        n = self.signals
        self.model.tell(n)
        await self._send(lambda **o: self.run.signal(Interpreted.tell, n, **o), f"tell {n}")

    async def burst(self):
        """Messages that are on their way together; what is repeated may come in another order."""
        sends = []
        while len(sends) < 3 and not self.model.is_over:
            sends.append(asyncio.ensure_future(self.tell()))
            await asyncio.sleep(0)
        await asyncio.gather(*sends)

    async def noise(self):
        """Another run has turns, so that what the log has of this one is moved into the tables."""
        other = self.runtime.ref("other", Interpreted)
        for n in range(1, 6):
            await self._send(lambda n=n, **o: other.signal(Interpreted.tell, 3 * n - 1, **o), None)

    async def ask(self):
        self.updates += 1
        n = self.updates
        self.model.ask(n)
        self.asked[n] = asyncio.ensure_future(self._ask(n))

    async def _ask(self, n):
        try:
            return await self._send(lambda **o: self.run.execute_update(Interpreted.ask, n, **o), f"ask {n}")
        except UpdateFailedError:
            return "failed"
        except UpdateCutError:
            return "cut"

    async def open(self, gate):
        self.model.open(gate)
        self.outside.open(gate)

    async def cancel(self):
        self.is_cancelled = True
        self.model.cancel()
        while True:
            try:
                return await self.run.cancel("the script")
            except CommitUnknownError:
                await self._rebuilt()
            except WorkflowClosedError:
                return None  # the first one was written after all

    async def fail(self, when, what):
        """The commit of what is done next fails, before or after it is on disk."""
        self.store.failures.append(when)
        await getattr(self, what)()

    async def paused(self, what, fails):
        """Something happens while the run is paused, and is handled after that."""
        await self._send(lambda **o: self.run.pause("the script", **o), None)
        await self.settle()
        self.is_paused = True
        if fails:
            self.store.failures.append("before")
        await getattr(self, what)()
        await self.settle()
        self.is_paused = False
        await self._send(lambda **o: self.run.resume("the script", **o), None)

    async def crash(self, what, fails):
        """The next turn crashes, once."""
        Crashing.left[asyncio.get_running_loop()] = True
        if fails:
            self.store.failures.append("before")
        await getattr(self, what)()
        await self.settle()
        Crashing.left.clear()

    async def restart(self):
        """Leave, and open the journal again; callers of updates are cut loose and ask again."""
        self.store.failures.clear()
        waiting = [n for n, task in self.asked.items() if not task.done()]
        for n in waiting:
            self.asked.pop(n).cancel()
        await self.leave()
        await self.enter()
        for n in waiting:
            self.asked[n] = asyncio.ensure_future(self._ask(n))

    async def look(self):
        """A query and a description change nothing."""
        seen = await self.run.query(Interpreted.seen)
        assert seen == _plain(self.model.program.found()), "a query sees something else"
        assert (await self.run.describe()).status == ("paused" if self.is_paused else "running")

    # --- what is compared

    async def compare(self):
        outcome = self.model.outcome
        if outcome == "running":  # to ask the run itself would bring it into memory
            running = await self.runtime.count_workflows(status="running", workflow_type="Interpreted")
            assert running == 2, "the run has ended"
            for n in self.model.answers:
                await self._compare_answer(n)
            return
        seen = await self.run.describe()
        status = seen.status
        assert seen.published == self.model.program.published
        expected = outcome if isinstance(outcome, str) else "completed"
        assert status == expected, f"the run is {status}, the model {expected}"
        if isinstance(outcome, dict):
            assert await self.run.result() == _plain(outcome)
        elif outcome == "cancelled":
            try:
                await self.run.result()
            except WorkflowCancelledError:
                pass
            else:
                raise AssertionError("the run was cancelled, and has a result")
        for n in self.model.answers:
            await self._compare_answer(n)

    async def _compare_answer(self, n):
        answer = self.model.answer(n)
        task = self.asked[n]
        if answer is None and not self.model.is_over:
            assert not task.done(), f"update {n} has an answer, in the model it waits"
            return
        found = await asyncio.wait_for(asyncio.shield(task), 10)
        if found != "cut":
            assert found == answer, f"update {n}"
        else:
            assert self.model.is_over and (answer is None or self.is_cancelled)


def _plain(found):
    """As it comes back from the journal."""
    return json.loads(json.dumps(found))


def replayed(records):
    """Replay a history in a fresh instance; raises where the code decides otherwise."""
    known = {it.name: it for it in map(activity_definition, ACTIVITIES)}
    types = {it.name: it for it in map(workflow_definition, (Interpreted, Part))}
    instance = WorkflowInstance(types["Interpreted"], known, PayloadConverter(), workflows=types)
    replay(instance, records)
    instance.discard()


def run_examples(examples, start, keep=None):
    """Run so many examples; raises what differs, with the smallest program that shows it."""
    kept = []

    @seed(start)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    @given(programs(), actions, st.sampled_from([0, 1, 1000]))
    def example(program, script, cached):
        steps = [*timed(program), ["wait", 6]]  # or many would end before anything has happened
        records = asyncio.run(asyncio.wait_for(Round(steps, cached).play(script), LIMIT))
        replayed(records)
        if len(kept) < 200:
            kept.append([[at, encode_record(record).hex()] for at, record in records])

    logging.disable(logging.CRITICAL)
    before = [(module, name, getattr(module, name)) for module, name, _ in SMALL]
    for module, name, value in SMALL:
        setattr(module, name, value)
    try:
        example()
    finally:
        for module, name, value in before:
            setattr(module, name, value)
    if keep is not None:
        Path(keep).write_text(json.dumps(kept))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", metavar="FILE", help="leave histories there")
    parser.add_argument("--replay", metavar="FILE", help="only replay these")
    options = parser.parse_args()
    if options.replay:
        histories = json.loads(Path(options.replay).read_text())
        for history in histories:
            replayed([(at, decode_record(bytes.fromhex(body))) for at, body in history])
        sys.stdout.write(f"{len(histories)} histories replayed\n")
        return
    run_examples(options.examples, options.seed, options.keep)
    sys.stdout.write(f"{options.examples} examples agree with the model\n")


if __name__ == "__main__":
    main()
