"""Replays of histories, assertions about them: calls that both type checkers accept, and the types that they give."""

from datetime import timedelta
from pathlib import Path
from typing import Any, assert_type

from everact import History, WorkflowHandle, activity, workflow
from everact.exceptions import ReplayFailedError
from everact.interceptors import Interceptor
from everact.payloads import ZstdCodec
from everact.testing import (
    ActivityCompleted,
    ActivityFailed,
    ActivityScheduled,
    EventMatcher,
    HistoryAssertion,
    Replayer,
    ReplayFailure,
    ReplayReport,
    ReplayResult,
    TimerStarted,
    UpdateFailed,
    WorkflowCompleted,
    WorkflowStarted,
    assert_compensated,
    assert_history,
    assert_history_matches,
    assert_not_compensated,
    history_text,
)


@activity.defn
async def charge(cents: int) -> str:
    return str(cents)


@workflow.defn
class Replayed:
    @workflow.run
    async def run(self, cents: int) -> str:
        return await charge(cents)


def make(interceptors: list[Interceptor]) -> Replayer:
    Replayer(workflows=[Replayed])
    return Replayer(
        workflows=[Replayed],
        activities=[charge],
        interceptors=interceptors,
        codecs=[ZstdCodec()],
        trust_pickle=False,
        guard="strict",
        jump_steps=False,
        hash_seeds=(),
    )


async def replays(replayer: Replayer, handle: WorkflowHandle[Replayed, str]) -> None:
    history = await handle.fetch_history()
    assert_type(history, History)
    report = replayer.replay(history)
    assert_type(report, ReplayReport)
    replayer.replay("a.json", raise_on_failure=False)
    replayer.replay(Path("a.json"))
    replayer.replay({"format": "everact run"})
    replayer.replay_many("histories", progress=lambda done, of: print(done, of))
    replayer.replay_many([history, "a.json", Path("below")], raise_on_failure=False)
    replayer.replay_journal("journal", status="running", types=["Order"], limit=10)
    for result in report.results:
        assert_type(result, ReplayResult)
        assert_type(result.passed, bool)
        if result.failure is not None:
            assert_type(result.failure, ReplayFailure)
            assert_type(result.failure.line, int)
    assert_type(report.as_text(), str)
    assert_type(report.as_data(), dict[str, Any])
    assert_type(report.as_junit(), str)
    assert_type(report.failures_by_kind, dict[str, int])
    try:
        report.raise_for_failures()
    except ReplayFailedError as error:
        print(error.report)


def assertions(history: History) -> None:
    chain = (
        assert_history(history)
        .has(ActivityScheduled("charge", [7]), times=1)
        .then(ActivityScheduled(args=lambda args: args[0] == 7, command=...))
        .then(ActivityCompleted("charge", "7", attempt=1))
        .then(TimerStarted(timedelta(seconds=1)))
        .then(TimerStarted(0.5))
        .then(WorkflowCompleted("7"))
        .never(ActivityFailed("charge", ValueError))
        .then_never(UpdateFailed("ask", lambda text: "no" in text, rejected=True))
        .has(EventMatcher("MemoUpserted", names=["colour"]))
    )
    assert_type(chain, HistoryAssertion)
    chain.has(ActivityScheduled(charge)).then(WorkflowStarted(Replayed)).never(ActivityFailed)
    assert_type(chain.count(ActivityScheduled()), int)
    assert_compensated(history, ["refund", charge], saga="trip", in_order=False)
    assert_not_compensated(history)
    assert_type(history_text(history), str)
    assert_history_matches(history, "order.txt", update=True)
