"""Tests whose process is killed by SIGKILL and begins again on the same journal: ``@pytest.mark.kill_everywhere``.

Each life of a test is a fork of pytest's process, made where the fixtures are set up and the test has not begun. So it
costs a hundredth of a second and not a start of Python, and what it leaves behind is on disk or nowhere.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from ..journal.fault_points import FAULT_POINTS, watched
from .crashes import Fault, Plan

__all__ = ["KilledTest"]


class KilledPlan(Plan):
    """Of one life: its environments find the journals of the life before, and its calls are repeats of that one's.

    The n-th environment of a life goes on with the journal of the n-th one before, and the n-th call of a kind has its
    request id: what was answered then is answered again, and not done again.
    """

    def __init__(self, folder: Path) -> None:
        """Begin.

        Args:
            folder: Where the journals are.
        """
        super().__init__()
        self._folder = folder
        self._environments = 0
        self._calls: Counter[str] = Counter()

    @property
    def is_expected(self) -> bool:
        """A call may be one that the life before has made."""
        return True

    def journal(self) -> Path:
        """Of the next environment."""
        self._environments += 1
        return self._folder / f"journal-{self._environments}"

    def call_id(self, otherwise: Callable[[], str], *about: str) -> str:
        """Of the next call of a kind: tasks may be in another order than in the life before."""
        del otherwise  # it differs from life to life
        what = " ".join(about)
        self._calls[what] += 1
        return f"{what} {self._calls[what]}"


class Life(NamedTuple):
    """What became of one.

    Attributes:
        is_killed: It was, by SIGKILL.
        passes: How often it passed each point; empty when it was killed.
        error: What it failed with; empty for nothing.
        skipped: Why the test was skipped; empty when it was not.
    """

    is_killed: bool = False
    passes: dict[str, int] = {}  # noqa: RUF012  (nobody writes to it)
    error: str = ""
    skipped: str = ""


class KilledTest:
    """A test, and the lives it has."""

    def __init__(self, item: Any, run: Callable[[Plan], None]) -> None:
        """Begin.

        Args:
            item: Of pytest.
            run: Runs the test in this process.
        """
        self._item = item
        self._run = run
        self._tmp_path: Path | None = getattr(item, "funcargs", {}).get("tmp_path")

    def everywhere(self, patterns: list[str], alone: list[Fault], limit: int) -> None:
        """Let it live once to count, then kill it at each pass of each point that a pattern names.

        Raises:
            ValueError: It passes none of them.
        """
        with TemporaryDirectory(prefix="everact-killed-") as folder:
            kept = Path(folder, "tmp_path")
            if self._tmp_path is not None:
                shutil.copytree(self._tmp_path, kept)
            faults = alone
            if patterns:
                counted = self._round(Path(folder, "0"), kept, None)
                faults = alone + self._chosen(patterns, counted.passes, limit)
            killed = 0
            for number, fault in enumerate(faults, 1):
                life = self._round(Path(folder, f"{number}"), kept, fault)
                killed += life.is_killed
            if not killed:
                said = ", ".join(map(str, faults[:5]))
                raise RuntimeError(
                    f"{self._item.nodeid}: none of {len(faults)} kills has happened: {said} is not passed so often"
                )

    def _chosen(self, patterns: Iterable[str], passes: dict[str, int], limit: int) -> list[Fault]:
        found = [
            Fault(point, number)
            for point in FAULT_POINTS
            if any(fnmatchcase(point, pattern) for pattern in patterns)
            for number in range(1, passes.get(point, 0) + 1)
        ]
        if not found:
            raise ValueError(
                f"{self._item.nodeid} passes none of the points {', '.join(patterns)}: is there a TestEnvironment "
                f"in it?"
            )
        if len(found) > limit:
            text = (
                f"{self._item.nodeid} is killed at {limit} of {len(found)} places, evenly spread: name fewer points, "
                f"or limit={len(found)} for all of them"
            )
            self._item.add_report_section("call", "everact", text)
            found = [found[index * len(found) // limit] for index in range(limit)]
        return found

    def _round(self, folder: Path, kept: Path, fault: Fault | None) -> Life:
        """Let it begin with nothing, be killed at one place or none, and go on to its end; returns the first life."""
        folder.mkdir()
        if self._tmp_path is not None:
            _refill(self._tmp_path, kept)
        first = last = self._live(folder, fault)
        if first.is_killed:
            last = self._live(folder, None)
        if last.is_killed:
            last = Life(error="killed by SIGKILL, and not by this test")
        if last.skipped:
            pytest.skip(last.skipped)
        if last.error and first.is_killed and fault is not None:
            pytest.fail(
                f"{last.error}\nin the life behind a SIGKILL at pass {fault.number} of {fault.kind}; only this one: "
                f'@pytest.mark.kill_everywhere(points="{fault}")',
                pytrace=False,
            )
        if last.error:
            pytest.fail(f"{last.error}\nin a life that was not killed", pytrace=False)
        shutil.rmtree(folder)
        return first

    # --- one life

    def _live(self, folder: Path, fault: Fault | None) -> Life:
        """Run the test in a child that is killed at a pass of a point, if it comes there."""
        ours, theirs = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():  # newer versions of Python warn where there are threads
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            self._be_child(theirs, folder, fault)
        os.close(theirs)
        try:
            with os.fdopen(ours, "rb") as pipe:
                said = pipe.read()
            _, status = os.waitpid(child, 0)
        except BaseException:  # such as the limit of the test
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            return Life(is_killed=True)
        if code or not said:
            return Life(error=f"its process has ended with code {code} before the test was done")
        life: Life = pickle.loads(said)  # noqa: S301  (by our own child)
        return life

    def _be_child(self, pipe: int, folder: Path, fault: Fault | None) -> None:
        """Run the test, say what came of it, and end."""
        code = 1
        try:
            passes: Counter[str] = Counter()
            lock = threading.Lock()

            def passed(point: str, _passer: object) -> None:
                with lock:
                    passes[point] += 1
                    if fault is not None and (fault.kind, fault.number) == (point, passes[point]):
                        os.kill(os.getpid(), signal.SIGKILL)

            error = skipped = ""
            try:
                with watched(passed):
                    self._run(KilledPlan(folder))
            except pytest.skip.Exception as skip:
                skipped = str(skip)
            except BaseException as raised:  # noqa: BLE001  (it is the test's, and told to the parent)
                error = str(self._item.repr_failure(pytest.ExceptionInfo.from_exception(raised)))
            with os.fdopen(pipe, "wb") as file:
                pickle.dump(Life(passes=dict(passes), error=error, skipped=skipped), file)
            sys.stdout.flush()
            sys.stderr.flush()
            code = 0
        finally:
            os._exit(code)  # without the end of pytest, which is the parent's


def _refill(folder: Path, kept: Path) -> None:
    """Let a folder be as it was."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    shutil.copytree(kept, folder, dirs_exist_ok=True, symlinks=True)
