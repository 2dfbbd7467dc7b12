"""The test environment: a real runtime on a journal of its own, whose time is virtual."""

# The implementations below their overloads take `*args: *Ts`, or mypy refuses the overloads.
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import AsyncExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from ..actors.activity_pool import Ended
from ..actors.async_blocks import AsyncBlock
from ..actors.attempts import Attempt
from ..actors.errors import RuntimeClosedError
from ..actors.handles import WorkflowHandle
from ..actors.options import (
    StartOptions,
    check_option_names,
    each_of,
    microseconds,
    positive_count,
)
from ..actors.runtime import Runtime
from ..actors.typing import R, Ts, W, WorkflowClass
from ..actors.workflow_types import named_type
from ..journal.memory_store import MemoryJournal, MemoryStore
from ..journal.store import JournalStore
from .calls import WaitingMessenger
from .clock import START, VirtualClock, VirtualLater, VirtualLooks
from .crashes import Lives, present_plan
from .driver import Call, TimeDriver
from .end_replay import replay_at_end
from .errors import LEFT, NOT_OPEN, ActivityNotMockedError
from .faults import Faults
from .mocking import Mocking
from .mocks import Mocks, activity_names
from .report import report
from .virtual_runtime import RuntimeOptions, VirtualRuntime

#: Where an environment keeps its journal: in memory, or in an LMDB file of a directory of its own.
Storage = Literal["memory", "lmdb"]
#: How long a call waits for somebody to move time by hand while nobody does anything, in seconds of real time.
PATIENCE = 5.0
#: Options of an environment that are not those of its ``Runtime``.
_OPTIONS = (
    "activities",
    "journal",
    "patience",
    "replay",
    "replay_hash_seeds",
    "seed",
    "start_time",
    "store",
    "strict",
    "time",
    "workflows",
)


class TestEnvironment(Mocking, Faults, AsyncBlock):
    """A runtime for tests: ``async with TestEnvironment(workflows=[...], activities=[...]) as env:``.

    It is the production runtime, on a journal in memory or in a temporary directory, with the guards of
    ``guard="strict"``, fixed seeds, and a clock of its own. While somebody waits for the environment (for a result, an
    update, ``sleep``, ``until``) and nothing of it can run, time jumps to what is due next. Nothing else moves it.

    Attributes:
        clock: The clock of this environment, and of no other.
    """

    __test__ = False  # pytest: this is no test class

    def __init__(
        self,
        *,
        workflows: Iterable[type[Any]] = (),
        activities: Iterable[Any] = (),
        start_time: datetime = START,
        time: Literal["auto", "manual"] = "auto",
        seed: int = 0,
        strict: bool = True,
        store: Storage = "memory",
        journal: str | PathLike[str] | MemoryJournal | None = None,
        replay: bool = True,
        replay_hash_seeds: Iterable[int] = (),
        patience: timedelta | float = PATIENCE,
        max_scheduled_runs: int = 100,
        **options: Unpack[RuntimeOptions],
    ) -> None:
        """Check the declarations; nothing is opened yet.

        Args:
            workflows: Classes declared with ``@workflow.defn``.
            activities: Functions declared with ``@activity.defn``; those that are mocked need not be here.
            start_time: Where the clock begins, with a time zone; default 2026-01-01 00:00 UTC.
            time: ``auto``, or ``manual``: only ``advance`` moves the clock.
            seed: Ids of runs, what ``workflow.random`` gives, and the jitter of retries come from it.
            strict: An activity that is called, and neither registered nor mocked, fails the test:
                ActivityNotMockedError.
            store: Where the journal is, when no ``journal`` is given: ``memory`` or ``lmdb``.
            journal: Directory of a journal that is to stay, or one in memory that a test has made.
            replay: Replay the histories of all runs at the end; code that does not repeat one fails the test.
            replay_hash_seeds: Replay them also in other processes, under these values of ``PYTHONHASHSEED``; the
                workflows must then be importable by name.
            patience: With ``time="manual"``: a call that waits while nothing can run, and no other task of the loop
                goes on for so long, fails with NoProgressError; a timedelta or seconds of real time.
            max_scheduled_runs: A call that waits for the end of a chain of runs fails after so many of a
                ``cron_schedule``, which has none: EndlessScheduleError.
            **options: See ``RuntimeOptions``.

        Raises:
            TypeError: An option is unknown, or of the wrong type.
            Exception: As of ``Runtime``.
        """
        check_option_names("TestEnvironment", options, RuntimeOptions, *_OPTIONS)
        for name, flag in (("strict", strict), ("replay", replay)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be True or False, not {flag!r}")
        if journal is not None and not isinstance(journal, str | PathLike | MemoryJournal):
            raise TypeError(f"journal must be the path of a directory or a MemoryJournal, not {journal!r}")
        if time not in ("auto", "manual"):
            raise ValueError(f"time must be 'auto' or 'manual', not {time!r}")
        if store not in ("memory", "lmdb"):
            raise ValueError(f"store must be 'memory' or 'lmdb', not {store!r}")
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise TypeError(f"seed must be an int, not {seed!r}")
        self.clock = VirtualClock(start_time)
        self._workflows = list(each_of("workflows", workflows))
        self._activities = list(each_of("activities", activities))
        self._options = options
        self._seed = seed
        self._is_strict = strict
        self._hash_seeds = list(each_of("replay_hash_seeds", replay_hash_seeds))
        self._max_scheduled_runs = positive_count("max_scheduled_runs", max_scheduled_runs)
        self._replays = replay
        self._store = store
        self._journal: str | PathLike[str] | MemoryJournal | None = journal
        self._later = VirtualLater(self.clock)
        self._is_automatic = time == "auto"
        self._patience = microseconds("patience", patience) / 1_000_000
        self._driver: TimeDriver | None = None
        self._is_left = False
        self._checks: list[Callable[[], Awaitable[object]]] = []
        self._folders = AsyncExitStack()
        self._mocks = Mocks(self)
        self._runtime = self._new_runtime("journal")

    # --- life

    def _new_runtime(self, journal: str | PathLike[str] | JournalStore) -> VirtualRuntime:
        options: dict[str, Any] = {"guard": "strict", "grace": 0.0, "door": False, "durability": "os"}
        options.update(self._options)
        runtime = VirtualRuntime(
            journal, workflows=self._workflows, activities=self._activities, clock=self.clock, **options
        )
        runtime._virtual = (self._later, VirtualLooks(self.clock))
        self._mocks.use(runtime._registry, runtime._converter)
        return runtime

    async def __aenter__(self) -> Self:
        """Open the journal.

        Raises:
            Exception: As of entering a ``Runtime``.
        """
        if self._driver is not None:
            raise RuntimeError("this TestEnvironment is already entered; make another one")
        plan = present_plan()
        if self._journal is None:
            self._journal = plan.journal()
        elif isinstance(self._journal, MemoryJournal) and plan.journal() is not None:
            raise ValueError(
                "a test whose process is killed has its journals on disk: leave out the MemoryJournal"
            )
        if self._journal is None:
            self._journal = MemoryJournal() if self._store == "memory" else self._new_folder()
        self._driver = TimeDriver(
            self.clock,
            self._later,
            self._shard,
            self._report,
            fault=self._fault,
            is_automatic=self._is_automatic,
            patience=self._patience,
            max_scheduled_runs=self._max_scheduled_runs,
        )
        self._lives = Lives(self._shard, self._leave, self._come_back, self._driver, plan)
        self._calls = WaitingMessenger(self._driver, self._lives)
        try:
            await self._open()
        except BaseException:
            await self._folders.aclose()
            raise
        self._driver.start()
        self._lives.begin()
        return self

    def _new_folder(self) -> Path:
        folder = TemporaryDirectory(prefix="everact-test-")
        self._folders.callback(folder.cleanup)
        return Path(folder.name, "journal")

    async def _open(self) -> None:
        """Enter a runtime on the environment's journal."""
        journal = self._journal
        assert journal is not None
        driver = self._active_driver()
        store = MemoryStore(journal) if isinstance(journal, MemoryJournal) else journal
        runtime = self._runtime = self._new_runtime(store)
        runtime._lives, runtime._present = self._lives, lambda: self._runtime
        self._calls.behind, runtime._messenger = runtime._messenger, self._calls
        await runtime.__aenter__()
        shard = runtime._shard
        assert shard is not None
        # A journal may have runs of an environment of this seed: the key of the next run makes the ids differ.
        ids = random.Random(f"{self._seed}/ids/{shard.next_key}")  # noqa: S311
        shard.new_id = lambda: f"{ids.getrandbits(128):032x}"
        shard.dispatcher.jitter = random.Random(f"{self._seed}/jitter")  # noqa: S311
        shard.dispatcher.pool.slot_freed = driver.stir
        shard.dispatcher.pool.ended = partial(self._ended, shard.dispatcher.attempt_ended)
        driver.stir()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        driver = self._active_driver()
        try:
            await self._lives.end()
            if error is None:
                if (fault := self._fault()) is not None:
                    raise fault
                self._lives.plan.check_asked()
                for check in self._checks:
                    await check()
                if self._replays:
                    await replay_at_end(self._runtime, self._mocks.faked, self._hash_seeds)
        finally:
            self._is_left = self._mocks.is_over = True
            await driver.stop()
            try:
                await self._runtime.__aexit__(kind, error, trace)
            finally:
                await self._folders.aclose()

    def _ended(self, take: Ended, attempt: Attempt, outcome: Any) -> None:
        """An activity has ended; perhaps its result comes late."""
        if (late := self._lives.plan.passed("result.late")) is not None:
            self._later.call_later(late.delay, take, attempt, outcome)
        else:
            take(attempt, outcome)

    async def restart(self) -> None:
        """Leave the runtime and start another one on the same journal, as a process that is stopped and started.

        Attempts that run are cut, and run again; code of workflows is replayed. Calls in flight get a
        RuntimeClosedError; handles go on with the new runtime. No time passes.
        """
        self._active_driver()
        await self._lives.restart()

    async def _leave(self) -> None:
        await self._active_driver().stop()
        await self._runtime.__aexit__(None, None, None)

    async def _come_back(self) -> None:
        await self._open()
        self._active_driver().start()

    def at_end(self, check: Callable[[], Awaitable[object]]) -> None:
        """Have a check awaited at the end of the block, while the runtime is open; not when the block raises."""
        if self._is_left:
            raise RuntimeClosedError(LEFT)
        self._checks.append(check)

    def _fault(self) -> Exception | None:
        """What is wrong with the test, and was not said before."""
        if self._active_driver().misuse is not None:
            return self._active_driver().misuse
        if not self._mocks.missing or not self._is_strict:
            return None
        name, *_others = self._mocks.missing
        self._mocks.missing.clear()
        return ActivityNotMockedError(name, activity_names(self._runtime._registry.activities))

    def _shard(self) -> Any:
        return self._runtime._shard

    def _entered_driver(self) -> TimeDriver:
        if self._driver is None:
            raise RuntimeError(NOT_OPEN)
        return self._driver

    def _active_driver(self) -> TimeDriver:
        if self._is_left:
            raise RuntimeClosedError(LEFT)
        return self._entered_driver()

    # --- time

    def now(self) -> datetime:
        """The environment's time, UTC."""
        return self.clock.now()

    async def advance(self, duration: timedelta | float, *, past_running: bool = False) -> None:
        """Move time, stopping wherever something is due until what follows from it is done.

        Args:
            duration: A timedelta or seconds.
            past_running: Activities whose code really runs are not waited for, so that their limits can pass.
        """
        driver = self._active_driver()
        await driver.advance(microseconds("advance", duration), past_running=past_running)

    async def sleep(self, duration: timedelta | float) -> None:
        """Wait until so much time has passed; also for activities, which do not hold time while they wait here.

        Args:
            duration: A timedelta or seconds.
        """
        await self._active_driver().sleep(microseconds("sleep", duration) / 1_000_000)

    async def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until a condition holds; it is looked at whenever nothing can run.

        Raises:
            NoProgressError: It can never hold: nothing is due any more.
            TypeError: It is no function.
        """
        if not callable(condition):
            raise TypeError(
                f"env.until takes a function that returns whether it holds, as in env.until(lambda: ...), not "
                f"{condition!r}"
            )
        name = getattr(condition, "__qualname__", "a condition").rpartition("<locals>.")[2]
        await self._active_driver().until(condition, f"what env.until({name}) waits for")

    @contextmanager
    def time_held(self) -> Generator[None]:
        """Hold time in the block: nothing jumps, and no call is given up for lack of progress."""
        driver = self._active_driver()
        driver.holds += 1
        try:
            yield
        finally:
            driver.holds -= 1
            driver.stir()

    def report(self) -> str:
        """What holds time still, what is due next, and what each open run waits for."""
        return self._report(None)

    def _report(self, call: Call | None) -> str:
        return report(self._shard(), self.clock, self._entered_driver(), call)

    # --- runs

    @property
    def runtime(self) -> Runtime:
        """The runtime; another one after ``restart``."""
        return self._runtime

    @overload
    async def spawn(
        self, workflow: Callable[[W, *Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> WorkflowHandle[W, R]: ...
    @overload
    async def spawn(
        self, workflow: WorkflowClass[W, *Ts, R], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> WorkflowHandle[W, R]: ...
    @overload
    async def spawn(
        self, workflow: str, /, *args: Any, **options: Unpack[StartOptions]
    ) -> WorkflowHandle[Any, Any]: ...
    async def spawn(self, workflow: Any, /, *args: *Ts, **options: Any) -> Any:
        """Start a workflow; as of ``Runtime.spawn``."""
        self._active_driver()
        if not self._lives.plan.is_expected:
            self._lives.plan.start_passed()
            return await self._runtime.spawn(workflow, *args, **options)
        await self._lives.alive()
        plan, new_id = self._lives.plan, self._shard().new_id
        name, _ = named_type(workflow, self._runtime._registry.workflows)
        options.setdefault("id", plan.call_id(new_id, name))
        options.setdefault("request_id", plan.call_id(new_id, "start", name, str(options["id"])))
        return await self._lives.send(lambda: self._runtime.spawn(workflow, *args, **options))

    @overload
    async def execute(
        self, workflow: Callable[[W, *Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    async def execute(
        self, workflow: WorkflowClass[W, *Ts, R], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    async def execute(self, workflow: str, /, *args: Any, **options: Unpack[StartOptions]) -> Any: ...
    async def execute(self, workflow: Any, /, *args: *Ts, **options: Any) -> Any:
        """Start a workflow and wait for its result; as of ``Runtime.execute``."""
        self._active_driver()
        if not self._lives.plan.is_expected:
            self._lives.plan.start_passed()
            return await self._runtime.execute(workflow, *args, **options)
        handle = await self.spawn(workflow, *args, **options)
        return await handle.result()

    @overload
    def ref(self, workflow: str, kind: WorkflowClass[W, *Ts, R], /) -> WorkflowHandle[W, R]: ...
    @overload
    def ref(self, workflow: str, /) -> WorkflowHandle[Any, Any]: ...
    def ref(self, workflow: str, *kind: Any) -> Any:
        """A handle by workflow id or address; as of ``Runtime.ref``."""
        return self._runtime.ref(workflow, *kind)
