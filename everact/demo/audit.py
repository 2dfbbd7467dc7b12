"""The audit as durable workflows: one for each package, and a parent that collects their results."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from .. import activity, workflow
from . import record
from .record import Entry, Findings, Package, PackageResult

#: Files that one activity hashes; what a crash can cost is at most so many hashes for each thread.
BATCH = 50
#: Packages that are audited at the same time.
AT_A_TIME = 4


@dataclass(frozen=True)
class Record:
    """The lines of a package's RECORD, in batches.

    Attributes:
        batches: Each for one activity.
        note: Why there are none, or empty.
    """

    batches: tuple[tuple[Entry, ...], ...] = ()
    note: str = ""


class Watcher(Protocol):
    """Who wants to know how far the work is. Nothing in the audit depends on it."""

    def found(self, packages: int) -> None:
        """So many packages will be audited."""

    def started(self, key: str, kind: str) -> None:
        """An attempt has started of the activity call with this idempotency key."""

    def hashed(self, key: str, files: int) -> None:
        """The call with this key has hashed so many files."""

    def recording(self, package: str) -> AbstractAsyncContextManager[None]:
        """Around sending a package's result: when its body is done, that is durable with the parent."""
        ...


# --- activities: what touches the world -------------------------------------------------------------------------


class Auditor:
    """The activities, as methods of an object that has what they need.

    The plain ones run in threads and may block; the ``async`` ones run on the event loop and may talk to
    workflows.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    @activity.defn
    def find_packages(self, places: list[str]) -> list[Package]:
        """Find what is installed in some folders."""
        self._started()
        packages = record.find_packages(places)
        self._watcher.found(len(packages))
        return packages

    @activity.defn
    def read_record(self, package: Package) -> Record:
        """Read the RECORD of a package; one that has none is a result, not an error."""
        self._started()
        try:
            lines = record.read_record(package)
        except record.RecordError as error:
            return Record(note=str(error))
        return Record(tuple(tuple(lines[at : at + BATCH]) for at in range(0, len(lines), BATCH)))

    @activity.defn
    def check_files(self, package: Package, batch: tuple[Entry, ...]) -> Findings:
        """Hash some files of a package and compare them with its RECORD."""
        key = self._started()
        findings = record.check_files(package, batch)
        self._watcher.hashed(key, findings.files)
        return findings

    @activity.defn
    async def start_audit(self, package: Package, parent: str) -> None:
        """Start the workflow of a package; a repeated attempt finds the one that the first has started."""
        self._started()
        await activity.client().spawn(
            PackageAudit,
            package,
            parent,
            id=f"{parent}/{package.key}",
            if_running="attach",
            if_closed="attach",
        )

    @activity.defn
    async def send_result(self, parent: str, result: PackageResult) -> None:
        """Signal a result to the parent; a repeated attempt has the same request id and is applied once."""
        key = self._started()
        environment = activity.client().ref(parent, EnvironmentAudit)
        async with self._watcher.recording(result.package.key):
            await environment.signal(EnvironmentAudit.audited, result, request_id=key)

    def _started(self) -> str:
        about = activity.info()
        self._watcher.started(about.idempotency_key, about.activity_type)
        return about.idempotency_key


# --- workflows: what decides ------------------------------------------------------------------------------------


@workflow.defn
class PackageAudit:
    """Audits one package and sends the result to its parent."""

    @workflow.run
    async def run(self, package: Package, parent: str) -> PackageResult:
        """Read RECORD, check the files batch by batch, send the sum."""
        lines = await workflow.execute_activity_method(Auditor.read_record, package)
        # All batches are journalled in one go and run as threads become free. Those that have a result when the
        # process dies are never run again.
        parts = await asyncio.gather(
            *(
                workflow.execute_activity_method(Auditor.check_files, package, batch)
                for batch in lines.batches
            )
        )
        result = PackageResult(package, sum(parts, Findings()), lines.note)
        await workflow.execute_activity_method(Auditor.send_result, parent, result)
        return result


@workflow.defn
class EnvironmentAudit:
    """Audits every package in some folders, a few at a time."""

    def __init__(self) -> None:
        self.started = 0
        # A list, so that a result that arrives twice would show. None does: see Auditor.send_result.
        self.results: list[PackageResult] = []

    @workflow.run
    async def run(self, places: list[str]) -> list[PackageResult]:
        """Start an audit for each package, and return what all of them have sent."""
        packages = await workflow.execute_activity_method(Auditor.find_packages, places)
        me = workflow.info().workflow_id
        for package in packages:
            await workflow.wait_condition(lambda: self.started - len(self.results) < AT_A_TIME)
            self.started += 1
            await workflow.execute_activity_method(Auditor.start_audit, package, me)
        await workflow.wait_condition(lambda: len(self.results) == len(packages))
        order = {package.key: number for number, package in enumerate(packages)}
        return sorted(self.results, key=lambda result: order[result.package.key])

    @workflow.signal
    def audited(self, result: PackageResult) -> None:
        """Take the result of one package."""
        self.results.append(result)
