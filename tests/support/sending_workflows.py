"""A run that others talk to, and one that does."""

from everact import workflow
from everact.exceptions import ExternalWorkflowError


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.stopped = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self.stopped)
        return self.told

    @workflow.signal
    def tell(self, word: str) -> None:
        self.told.append(word)

    @workflow.signal
    def stop(self) -> None:
        self.stopped = True


@workflow.defn
class Other:
    @workflow.run
    async def run(self) -> str:
        return "other"


@workflow.defn
class Sender:
    """Sends what it is told to, and says what came of it."""

    @workflow.run
    async def run(self, verb: str, to: str, run_id: str | None, word: str) -> str:
        other = workflow.get_external_workflow_handle(to, run_id=run_id)
        try:
            if verb == "signal":
                await other.signal("tell", word)
            elif verb == "method":
                await other.signal(Waits.tell, word)
            elif verb == "unknown":
                await other.signal("nothing of the kind", word)
            else:
                await other.cancel(word)
        except ExternalWorkflowError as error:
            assert error.workflow_id == to
            assert error.run_id == (run_id or "")
            return f"{type(error.__cause__).__name__}: {error}"
        return "delivered"
