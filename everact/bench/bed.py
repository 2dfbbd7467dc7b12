"""Where workloads run: a place on the disk, fresh journals, one event loop each."""

from __future__ import annotations

import asyncio
import cProfile
import importlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..actors.runtime import Runtime
from ..journal.lmdb_format import DATA_FILE
from .bare import BareLog
from .metered_store import MeteredStore
from .user_code import ACTIVITIES, WORKFLOWS

T = TypeVar("T")


class LostRunsError(Exception):
    """A journal does not hold the runs that were measured: the figures mean nothing."""


class Bed:
    """Settings of one benchmark.

    Args:
        place: An empty directory on the disk to measure.
        scale: Multiplies the counts.
        uvloop: Use uvloop where it is installed.
        profile: Profiles the measured sections of the loop's thread.
    """

    def __init__(
        self, place: Path, *, scale: float = 1.0, uvloop: bool = True, profile: cProfile.Profile | None = None
    ) -> None:
        self.place = place
        self.scale = scale
        self._new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
        self.loop_name = "asyncio"
        self._profile = profile
        self._made = 0
        if uvloop:
            try:
                self._new_loop = importlib.import_module("uvloop").new_event_loop
                self.loop_name = "uvloop"
            except ImportError:
                self.loop_name = "asyncio (uvloop is not installed)"

    def count(self, usual: int, *, least: int) -> int:
        """A count to measure with, by the scale."""
        return max(least, round(usual * self.scale))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a new event loop of the chosen kind."""
        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            return runner.run(main)

    def path(self, name: str) -> Path:
        """A path that is not there yet."""
        self._made += 1
        return self.place / f"{self._made:02}-{name}"

    @contextmanager
    def bare_log(self) -> Generator[BareLog]:
        """A bare LMDB environment on the same disk."""
        log = BareLog(self.path("bare"))
        try:
            yield log
        finally:
            log.close()

    @contextmanager
    def profiled(self) -> Generator[None]:
        """Profile a section, if a profile was asked for."""
        if self._profile is not None:
            self._profile.enable()
        try:
            yield
        finally:
            if self._profile is not None:
                self._profile.disable()


class Measured:
    """A runtime on a fresh journal.

    Attributes:
        runtime: The open runtime.
        store: Its journal.
        completed: Completed runs that the journal held when it was opened again afterwards.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = MeteredStore(path)
        self.runtime = new_runtime(self.store)
        self.completed = 0

    @property
    def proof(self) -> dict[str, object]:
        """Where the runs are, and how many of them."""
        return {"journal": self.path.name, "completed_in_journal": self.completed}

    @property
    def file_bytes(self) -> int:
        """Size of the data file."""
        return (self.path / DATA_FILE).stat().st_size


def new_runtime(journal: MeteredStore | Path) -> Runtime:
    """A runtime with default settings for the measured code."""
    return Runtime(journal, workflows=WORKFLOWS, activities=ACTIVITIES)


@asynccontextmanager
async def measured(bed: Bed, name: str) -> AsyncGenerator[Measured]:
    """Run on a fresh journal; afterwards open it again and count what it holds."""
    it = Measured(bed.path(name))
    async with it.runtime:
        yield it
    async with new_runtime(it.path) as again:
        it.completed = await again.count_workflows(status="completed")


def check_completed(it: Measured, expected: int) -> None:
    """Compare what the journal holds with what was run.

    Raises:
        LostRunsError: They differ.
    """
    if it.completed != expected:
        raise LostRunsError(f"the journal {it.path} holds {it.completed} completed runs, not {expected}")
