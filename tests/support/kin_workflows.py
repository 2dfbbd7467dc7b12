"""For the corpus of committed histories: a run that has all there is to do with other runs."""

import asyncio
import contextlib

from everact import ApplicationError, workflow
from everact.exceptions import ChildWorkflowError, ExternalWorkflowError


@workflow.defn
class Kid:
    """Says its word, fails with it, or listens until it is told to go."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.gone = False

    @workflow.run
    async def run(self, kind: str, word: str = "") -> list[str]:
        if kind == "fails":
            raise ApplicationError(word, type="Broken")
        if kind == "listens":
            await workflow.wait_condition(lambda: self.gone)
        return [*self.words, word]

    @workflow.signal
    def hear(self, word: str) -> None:
        self.words.append(word)

    @workflow.signal
    def go(self) -> None:
        self.gone = True


@workflow.defn
class Kin:
    """A parent of every kind of child, and a sender of every kind of message."""

    @workflow.run
    async def run(self) -> list[str]:
        found = [*await workflow.execute_child_workflow(Kid, "says", "hello")]
        for start in (
            lambda: workflow.execute_child_workflow(Kid, "fails", "no luck", id="kin-fails"),
            lambda: workflow.start_child_workflow(Kid, "listens", id="kin"),
        ):
            try:
                await start()
            except ChildWorkflowError as error:
                found.append(f"{error.status}: {type(error.__cause__).__name__}")
        ear = await workflow.start_child_workflow(Kid, "listens", "heard", id="kin-ear")
        await asyncio.gather(ear.signal(Kid.hear, "one"), ear.signal("hear", "two"))
        await ear.signal(Kid.go)
        found += await ear
        cancelled = await workflow.start_child_workflow(Kid, "listens", id="kin-cancelled")
        cancelled.cancel("enough")
        first = await workflow.start_child_workflow(Kid, "listens", id="kin-replaced")
        second = await workflow.start_child_workflow(Kid, "listens", id="kin-replaced", if_running="replace")
        outcomes = await workflow.wait_for_children([cancelled, first])
        found += [outcome.status for outcome in outcomes]
        for kind in ("try_cancel", "wait_cancellation_completed", "abandon"):
            child = await workflow.start_child_workflow(
                Kid, "listens", id=f"kin-{kind}", cancellation_type=kind, parent_close_policy="request_cancel"
            )
            waiting = asyncio.create_task(child.result())
            await asyncio.sleep(0)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        never = workflow.execute_child_workflow(Kid, "says", id="kin-never")
        never.cancel()
        alone = await workflow.start_detached(Kid, "listens", "alone", id="kin-alone")
        await alone.signal(Kid.hear, "you")
        await alone.cancel("away")
        try:
            await workflow.get_external_workflow_handle("kin-nobody").cancel()
        except ExternalWorkflowError as error:
            found.append(type(error.__cause__).__name__)
        assert not second.done()
        return found
