"""Wrong calls about histories: each marked line is an error under mypy and under pyright."""

from everact import History, WorkflowHandle, workflow
from everact.testing import (
    ActivityScheduled,
    Replayer,
    TimerStarted,
    assert_compensated,
    assert_history,
    history_text,
)


@workflow.defn
class Replayed:
    @workflow.run
    async def run(self) -> None: ...


def wrong(history: History, handle: WorkflowHandle[Replayed, None]) -> None:
    Replayer()  # type: ignore[call-arg]
    Replayer(Replayed)  # type: ignore[call-arg, arg-type]
    Replayer(workflows=Replayed)  # type: ignore[arg-type]
    Replayer(workflows=[Replayed()])  # type: ignore[list-item]
    Replayer(workflows=[Replayed], guard="loud")  # type: ignore[arg-type]
    Replayer(workflows=[Replayed], hash_seeds=["1"])  # type: ignore[list-item]
    replayer = Replayer(workflows=[Replayed])
    replayer.replay(handle)  # type: ignore[arg-type]
    replayer.replay(handle.fetch_history())  # type: ignore[arg-type]
    replayer.replay(7)  # type: ignore[arg-type]
    replayer.replay(history, False)  # type: ignore[call-arg]
    replayer.replay_many(history)  # type: ignore[arg-type]
    replayer.replay_journal("journal", limit="all")  # type: ignore[arg-type]
    history_text(handle)  # type: ignore[arg-type]
    assert_history(history).has("ActivityScheduled")  # type: ignore[arg-type]
    assert_history(history).then(ActivityScheduled("charge"), times=2)  # type: ignore[call-arg]
    ActivityScheduled(7)  # type: ignore[arg-type]
    ActivityScheduled("charge", 7)  # type: ignore[arg-type]
    TimerStarted("1 s")  # type: ignore[arg-type]
    assert_compensated(history, [1])  # type: ignore[list-item]
