"""The process that does the work, and is killed: it can be started again on the same journal at any time."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from ..actors.errors import ResultTimeoutError
from ..actors.runtime import Runtime
from ..journal.errors import EveractError
from .audit import Auditor, EnvironmentAudit, PackageAudit

#: Threads that hash; more than cores, since some wait for the disk.
THREADS = min(8, 2 * (os.cpu_count() or 1))
#: How often the worker looks for workflows that have failed, in seconds.
LOOK = 1.0


class Pipe:
    """The watcher: writes JSON lines to standard output, and reads answers from standard input.

    Each line is one write, shorter than a pipe takes in one piece (PIPE_BUF), so lines of several threads never
    mix and a SIGKILL never leaves half of one.
    """

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._answer: asyncio.Future[None] | None = None
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._answered)

    def found(self, packages: int) -> None:
        """See ``Watcher``."""
        self._tell(event="found", packages=packages)

    def started(self, key: str, kind: str) -> None:
        """See ``Watcher``."""
        self._tell(event="started", key=key, kind=kind)

    def hashed(self, key: str, files: int) -> None:
        """See ``Watcher``."""
        self._tell(event="hashed", key=key, files=files)

    @asynccontextmanager
    async def recording(self, package: str) -> AsyncGenerator[None]:
        """See ``Watcher``; one result at a time, each until the supervisor has taken note of it.

        Otherwise a small environment would be done before the supervisor gets to kill anything. All other work
        goes on meanwhile.
        """
        async with self._one:
            yield
            self._answer = asyncio.get_running_loop().create_future()
            self._tell(event="recorded", package=package)
            await self._answer

    def _answered(self) -> None:
        if not os.read(sys.stdin.fileno(), 1):  # the supervisor is gone, and with it whoever wanted this
            os._exit(1)
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    @staticmethod
    def _tell(**fields: Any) -> None:
        os.write(sys.stdout.fileno(), json.dumps(fields).encode() + b"\n")


class AuditError(EveractError):
    """A workflow of the audit cannot go on; the message says which and why."""


async def work(journal: str, audit: str, places: list[str]) -> None:
    """Carry an audit on until it is done.

    Args:
        journal: Directory of the journal.
        audit: Workflow id; started if it does not exist yet.
        places: Folders to look for packages in.

    Raises:
        AuditError: One of its workflows has failed or stands still.
    """
    auditor = Auditor(Pipe())
    async with Runtime(
        journal,
        workflows=[EnvironmentAudit, PackageAudit],
        activities=[
            auditor.find_packages,
            auditor.read_record,
            auditor.check_files,
            auditor.start_audit,
            auditor.send_result,
        ],
        max_activity_threads=THREADS,
    ) as runtime:
        # The same call whether this is the first worker or the tenth.
        environment = await runtime.spawn(
            EnvironmentAudit, places, id=audit, if_running="attach", if_closed="attach"
        )
        while True:
            try:
                await environment.result(timeout=LOOK)
                break
            except ResultTimeoutError:
                await _check(runtime)
        for row in await runtime.list_workflows(workflow_type="PackageAudit"):
            await runtime.ref(row.workflow_id, PackageAudit).result()


async def _check(runtime: Runtime) -> None:
    for row in await runtime.list_workflows():
        if row.status not in ("running", "completed"):
            seen = await runtime.ref(row.workflow_id).describe()
            reason = (seen.failure or "").partition("\n")[0]
            raise AuditError(f"workflow {row.workflow_id} is {row.status}: {reason}")


def main(arguments: list[str]) -> int:
    """Run the worker process.

    Args:
        arguments: Directory of the journal, workflow id of the audit, folders to look for packages in.

    Returns:
        The exit code: 0 when the audit is done.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    journal, audit, *places = arguments
    try:
        asyncio.run(work(journal, audit, places))
    except EveractError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
