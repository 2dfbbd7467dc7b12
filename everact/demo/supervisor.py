"""The process that starts the worker, kills it with SIGKILL, and starts it again on the same journal.

While a worker lives it alone has the journal open, so all that is known here comes through its pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..journal.errors import EveractError

#: Lines of a failed worker's output that are shown.
TAIL = 5


class DemoError(EveractError):
    """The demo cannot be shown; the message says why and what to do."""


@dataclass(frozen=True)
class Kill:
    """A SIGKILL that has ended a worker.

    Attributes:
        pid: The worker's.
        seconds: Since the first worker was started.
        recorded: Packages whose result was known to be durable.
        packages: All packages.
        over: When the process was gone, in seconds since the epoch.
    """

    pid: int
    seconds: float
    recorded: int
    packages: int
    over: float


@dataclass(frozen=True)
class Start:
    """An attempt of an activity that a worker has reported.

    Attributes:
        worker: Number of the worker, from 0; worker n was started after kill n.
        key: Idempotency key of the call.
        kind: Name of the activity.
    """

    worker: int
    key: str
    kind: str


class View(Protocol):
    """Shows how far the work is."""

    def show(self, recorded: int, packages: int, files: int) -> None:
        """So many packages are done of so many, and so many files are hashed."""

    def say(self, text: str) -> None:
        """Show a line."""


class Supervisor:
    """Gets an audit done in spite of its own kills.

    Attributes:
        workers: Process ids, in order.
        kills: The kills that were made.
        starts: Attempts of activities, in order.
    """

    def __init__(self, journal: str, audit: str, places: Sequence[str], kills: int, view: View) -> None:
        """Nothing is started yet.

        Args:
            journal: Directory of the journal.
            audit: Workflow id of the audit.
            places: Folders to look for packages in.
            kills: How often to kill.
            view: Where progress is shown.
        """
        self._journal = journal
        self._audit = audit
        self._places = places
        self._wanted = kills
        self._view = view
        self._began = time.monotonic()
        self._packages = 0
        self._recorded: set[str] = set()
        self._hashed: dict[str, int] = {}
        self.workers: list[int] = []
        self.kills: list[Kill] = []
        self.starts: list[Start] = []

    def run(self) -> None:
        """Start workers until one has ended by itself with the audit done.

        Raises:
            DemoError: A worker has failed, other than by a kill of ours.
        """
        self._began = time.monotonic()
        while not self._run_worker():
            self._view.say(f"restarting on the same journal (worker {len(self.workers) + 1})")

    def _run_worker(self) -> bool:
        """Run one worker to its end; returns whether the audit is done."""
        # -P keeps modules in the present folder out of the worker; a session of its own keeps Ctrl-C away.
        command = [
            sys.executable,
            "-P",
            "-m",
            "everact.demo.worker",
            self._journal,
            self._audit,
            *self._places,
        ]
        with (
            tempfile.TemporaryFile() as trouble,
            subprocess.Popen(  # noqa: S603  (our own interpreter and module)
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=trouble,
                start_new_session=True,
            ) as worker,
        ):
            try:
                self.workers.append(worker.pid)
                killed_after = self._follow(worker)
                code = worker.wait()
            except BaseException:
                worker.kill()
                raise
            if code == 0:
                return True
            if code != -signal.SIGKILL or killed_after is None:
                trouble.seek(0)
                lines = trouble.read().decode(errors="replace").strip().splitlines()
                said = "\n".join(lines[-TAIL:]) or "it said nothing"
                raise DemoError(f"worker {worker.pid} ended with exit code {code}: {said}")
        kill = Kill(worker.pid, killed_after, len(self._recorded), self._packages, time.time())
        self.kills.append(kill)
        self._view.say(
            f"kill -9 of worker {kill.pid} after {kill.seconds:.1f} s, "
            f"at {kill.recorded} of {kill.packages} packages"
        )
        return False

    def _follow(self, worker: subprocess.Popen[bytes]) -> float | None:
        """Read what the worker reports until it has ended; returns when it was killed, if it was."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        killed_after = None
        for line in worker.stdout:
            news = json.loads(line)
            self._take(news)
            if killed_after is not None:
                continue  # what the worker had done before the kill reached it
            if self._is_time(news):
                os.kill(worker.pid, signal.SIGKILL)
                killed_after = time.monotonic() - self._began
            elif news["event"] == "recorded":
                with contextlib.suppress(BrokenPipeError):  # it is dying; its exit code will say of what
                    os.write(worker.stdin.fileno(), b".")
        return killed_after

    def _take(self, news: dict[str, Any]) -> None:
        match news["event"]:
            case "found":
                self._packages = news["packages"]
            case "started":
                self.starts.append(Start(len(self.workers) - 1, news["key"], news["kind"]))
            case "hashed":
                self._hashed[news["key"]] = news["files"]
            case "recorded":
                self._recorded.add(news["package"])
            case other:
                raise DemoError(f"the worker reports {other!r}, which nobody here knows")
        self._view.show(len(self._recorded), self._packages, sum(self._hashed.values()))

    def _is_time(self, news: dict[str, Any]) -> bool:
        """Whether to kill now: the kills divide the packages into equal parts."""
        number = len(self.kills) + 1
        if number > self._wanted or not self._packages or news["event"] not in ("started", "recorded"):
            return False
        return len(self._recorded) >= self._packages * number // (self._wanted + 1)
