"""What the journal shows when all is over: the table, and that nothing was lost or done twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ..actors.runtime import Runtime
from .audit import EnvironmentAudit, PackageAudit
from .record import PackageResult, RecordError, check_files, find_packages, read_record
from .supervisor import Kill, Start


@dataclass(frozen=True)
class Claim:
    """One line of the proof.

    Attributes:
        holds: Whether it is true.
        text: What was counted.
    """

    holds: bool
    text: str


@dataclass(frozen=True)
class Restart:
    """What a restart found, and what it did again.

    Attributes:
        results: Activity results that were in the journal.
        repeated: Of these, how many ran again; none should.
        cut: Activities that had started without a result being recorded, and so ran again.
    """

    results: int
    repeated: int
    cut: int


@dataclass(frozen=True)
class Outcome:
    """Everything that the report needs.

    Attributes:
        table: The audit's result.
        claims: The proof.
        restarts: One for each kill.
        plain_seconds: How long the plain loop took.
    """

    table: list[PackageResult]
    claims: list[Claim]
    restarts: list[Restart]
    plain_seconds: float


async def read_journal(
    journal: str, audit: str, places: Sequence[str], kills: Sequence[Kill], starts: Sequence[Start]
) -> Outcome:
    """Open the journal after the last worker has left it, and count.

    Args:
        journal: Directory of the journal.
        audit: Workflow id of the audit.
        places: Folders that were audited.
        kills: The kills that were made.
        starts: All attempts of activities.
    """
    results: Counter[str] = Counter()
    result_times: dict[str, datetime] = {}
    async with Runtime(journal, workflows=[EnvironmentAudit, PackageAudit]) as runtime:
        environment = runtime.ref(audit, EnvironmentAudit)
        table = await environment.result()
        rows = await runtime.list_workflows()
        for row in rows:
            for event in await runtime.ref(row.workflow_id).fetch_history():
                if event.kind == "ActivityCompleted":
                    key = f"{row.run_id}/{event.fields['command']}"
                    results[key] += 1
                    result_times[key] = event.at
        signals = [
            event.fields["request_id"]
            for event in await environment.fetch_history()
            if event.kind == "SignalReceived"
        ]
    began = time.monotonic()
    plain = audit_plainly(places)
    plain_seconds = time.monotonic() - began
    restarts = [_restart(number, kill, starts, result_times) for number, kill in enumerate(kills, 1)]
    claims = [
        _recorded_once(table, signals, starts),
        _completed_once(table, [(row.workflow_id, row.status) for row in rows if row.workflow_id != audit]),
        _nothing_repeated(results, restarts),
        Claim(
            table == plain,
            f"the table equals a plain loop's, computed without workflows: {len(plain)} rows, "
            f"{sum(row.findings.files for row in plain):,} files",
        ),
    ]
    return Outcome(table, claims, restarts, plain_seconds)


def audit_plainly(places: Sequence[str]) -> list[PackageResult]:
    """The same table by a loop: no workflows, no journal, no threads, no batches."""
    table = []
    for package in find_packages(places):
        try:
            table.append(PackageResult(package, check_files(package, read_record(package))))
        except RecordError as error:
            table.append(PackageResult(package, note=str(error)))
    return table


def _recorded_once(table: Sequence[PackageResult], signals: Sequence[str], starts: Sequence[Start]) -> Claim:
    packages = len({result.package.key for result in table})
    requests = len(set(signals))
    sent = sum(start.kind == "send_result" for start in starts)
    return Claim(
        packages == len(table) == requests == len(signals) <= sent,
        f"every result is recorded once: {packages} packages, {len(signals)} signals in the parent's history "
        f"with {requests} request ids, from {sent} attempts to send",
    )


def _completed_once(table: Sequence[PackageResult], runs: Sequence[tuple[str, str]]) -> Claim:
    ids = len({workflow_id for workflow_id, _ in runs})
    completed = sum(status == "completed" for _, status in runs)
    return Claim(
        ids == len(runs) == completed == len(table),
        f"every package workflow completed once: {completed} completed of {len(runs)} runs of {ids} workflows",
    )


def _nothing_repeated(results: Counter[str], restarts: Sequence[Restart]) -> Claim:
    repeated = sum(restart.repeated for restart in restarts)
    return Claim(
        not repeated and all(count == 1 for count in results.values()),
        f"no finished work was repeated: {len(results):,} activity results, each in the journal once, "
        f"{repeated} run again after a restart",
    )


def _restart(number: int, kill: Kill, starts: Sequence[Start], result_times: dict[str, datetime]) -> Restart:
    """Compare what was in the journal after a kill with what later workers started."""
    over = datetime.fromtimestamp(kill.over, UTC)
    durable = {key for key, at in result_times.items() if at < over}
    before = {start.key for start in starts if start.worker < number}
    after = {start.key for start in starts if start.worker >= number}
    return Restart(len(durable), len(durable & after), len((before - durable) & after))
