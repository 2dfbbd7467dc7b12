"""Random families: trees of children that signal, cancel and end in every way, through evictions, restarts and failed
commits; what each run has seen is in its history, and its code replays over it.
"""

import asyncio
import random
from contextlib import suppress

import pytest
from support.hosting import hosted, settled
from support.rounds import rounds

from everact import ApplicationError, workflow
from everact.actors.definitions import workflow_definition
from everact.actors.replay import replay
from everact.actors.workflow_instance import WorkflowInstance
from everact.exceptions import ChildWorkflowError, CommitUnknownError, EveractError, ExternalWorkflowError
from everact.journal import child_events as ce
from everact.journal import events as ev
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal
from everact.journal.payloads import PayloadConverter

DEPTH = 3
POINTS = ("outbox.send.before", "outbox.apply.before", "outbox.written", "journal.commit.after")


@workflow.defn
class Node:
    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.signal
    def hear(self, word: str) -> None:
        self.heard.append(word)

    @workflow.run
    async def run(self, depth: int) -> str:
        choose = workflow.random()
        me = workflow.info().workflow_id
        open_children = []
        for number in range(choose.randint(0, 5) if depth else 0):
            options = {
                "id": f"{me}.{number}",
                "parent_close_policy": choose.choice(["terminate", "request_cancel", "abandon"]),
                "cancellation_type": choose.choice(["try_cancel", "wait_cancellation_completed", "abandon"]),
            }
            way = choose.choice(["execute", "start", "detach", "drop", "race"])
            with suppress(ChildWorkflowError, ExternalWorkflowError):
                if way == "execute":
                    await workflow.execute_child_workflow(Node, depth - 1, **options)
                elif way == "start":
                    child = await workflow.start_child_workflow(Node, depth - 1, **options)
                    open_children.append(child)
                    for word in range(choose.randint(0, 3)):
                        await child.signal(Node.hear, str(word))
                    if choose.random() < 0.3:
                        child.cancel("for fun")
                elif way == "detach":
                    other = await workflow.start_detached(Node, depth - 1, id=options["id"])
                    await asyncio.gather(*(other.signal(Node.hear, str(n)) for n in range(3)))
                elif way == "drop":
                    future = workflow.execute_child_workflow(Node, depth - 1, **options)
                    if choose.random() < 0.5:
                        await asyncio.sleep(0)
                    future.cancel()
                else:
                    task = asyncio.ensure_future(workflow.execute_child_workflow(Node, depth - 1, **options))
                    await asyncio.wait({task}, timeout=0.001)
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
        if open_children and choose.random() < 0.7:
            await workflow.wait_for_children(open_children, choose.choice(["any", "all"]))
        if choose.random() < 0.2:
            raise ApplicationError(f"{me} had enough")
        return ",".join(self.heard)


async def check(runtime):
    definition = workflow_definition(Node)
    for run in await runtime.list_workflows(limit=10_000):
        history = await runtime.ref(run.workflow_id).fetch_history()
        events = [event.event for event in history]
        heard = [event.command for event in events if isinstance(event, ce.CHILD_ENDS)]
        assert len(heard) == len(set(heard)), f"{run.workflow_id} heard of an end twice"
        answered = [event.command for event in events if isinstance(event, ce.MESSAGE_ENDS)]
        assert len(answered) == len(set(answered))
        words = [e.args[0].data for e in events if isinstance(e, ev.SignalReceived)]
        assert words == sorted(set(words)), f"{run.workflow_id} was told {words}"
        instance = WorkflowInstance(definition, {}, PayloadConverter(), workflows={"Node": definition})
        replay(instance, history.records)
        instance.discard()
    assert runtime._shard.outbox.pending(0) == []


async def grow(journal, seed, fails):
    """One life; returns whether all was done."""
    choose = random.Random(seed)
    async with hosted(journal, Node) as runtime:
        left = choose.randint(3, 40)

        def fail():
            nonlocal left
            left -= 1
            if fails and not left:
                left = choose.randint(3, 40)
                raise OSError("as planned")

        with armed(choose.choice(POINTS), fail):
            for root in range(3):
                while True:
                    try:
                        await runtime.spawn(
                            Node, DEPTH, id=f"root-{root}", if_running="attach", if_closed="attach"
                        )
                        break
                    except CommitUnknownError:
                        await settled(runtime)
            for root in range(3):
                with suppress(EveractError):
                    if choose.random() < 0.3:
                        return False
                    await runtime.ref(f"root-{root}").result(timeout=20)
        fails = False
        for _ in range(200):
            await settled(runtime)
            if not await runtime.count_workflows(status="running"):
                break
            await asyncio.sleep(0.002)
        else:
            return False
        await settled(runtime)
        await check(runtime)
        return True


@pytest.mark.parametrize("seed", rounds(range(12), 8))
async def test_random_families_are_whole(seed):
    journal = MemoryJournal()
    for life in range(40):
        if await grow(journal, f"{seed}/{life}", fails=seed % 2 == 1):
            return
    raise AssertionError("they never end")
