"""Replays stored histories with the code as it is now, the way a runtime does, and reports what does not fit."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self, TypeVar

from ..actors.definitions import ActivityDefinition
from ..actors.dynamic import UndeclaredActivities
from ..actors.errors import WorkflowNotRegisteredError
from ..actors.interceptors import Interceptor, check_interceptors
from ..actors.loading import new_instance
from ..actors.options import check_status, each_of, positive_count
from ..actors.registry import Registry
from ..actors.replay import Replay
from ..actors.run_end import WorkflowCrashedError
from ..actors.runtime import Runtime
from ..actors.source_check import check_workflows
from ..actors.turn_guard import Guard, install_guards
from ..journal.clock import SystemClock
from ..journal.codecs import PayloadCodec
from ..journal.payloads import PayloadConverter
from ..journal.type_converters import TypeConverter, TypeUpgrade
from .coded_histories import decoded
from .history_sources import HistoryLike, StoredHistory, each_of_many, histories_of, history_of
from .journal_histories import JournalHistories
from .replay_process import ReplayProcess, Spawned, spawned
from .replay_report import ReplayReport, ReplayResult, failure_from

__all__ = ["Replayer"]

T = TypeVar("T")
#: Called with how many histories are done, and how many there are.
Progress = Callable[[int, int], object]


class Replayer:
    """Replays histories with these workflows.

    Nothing is written and no activity runs. Calls block until they are done; inside a running event loop the replay
    itself is in a thread.
    """

    def __init__(
        self,
        *,
        workflows: Iterable[type[Any]],
        activities: Iterable[Any] | None = None,
        interceptors: Sequence[Interceptor] = (),
        converters: Iterable[TypeConverter[Any] | TypeUpgrade] = (),
        codecs: Sequence[PayloadCodec] = (),
        trust_pickle: bool = False,
        guard: Guard = "warn",
        jump_steps: bool = True,
        hash_seeds: Iterable[int] = (),
    ) -> None:
        """Check the declarations.

        Args:
            workflows: Classes declared with ``@workflow.defn``; children's too.
            activities: As of the ``Runtime``. Without any, each activity that is called by its function counts as
                registered; those that are called by a name, and dynamic ones, have to be given.
            interceptors: As of the ``Runtime``.
            converters: As of the ``Runtime``.
            codecs: As of the ``Runtime``, for histories out of a journal with payload codecs.
            trust_pickle: As of the ``Runtime``.
            guard: As of the ``Runtime``.
            jump_steps: Pass over the bodies of steps that are checkpoints, as a runtime does. Without that they are
                replayed too: what has changed inside of a step that is over then shows, though it would do no harm.
            hash_seeds: Each history is also replayed in a process of its own under each of these values of
                ``PYTHONHASHSEED``, 0 to 4294967295: what depends on the order of a set shows there. Everything given
                above must then be importable by name.

        Raises:
            RegistrationError: As of the ``Runtime``.
            TypeError: An argument is of the wrong type.
            ValueError: A seed is out of range, or there are seeds and something cannot be imported by another process.
        """
        declared = list(each_of("workflows", workflows))
        functions = None if activities is None else list(each_of("activities", activities))
        registry = Registry(declared, functions or ())
        check_workflows(registry.classes, guard)
        install_guards(guard)
        converting = list(each_of("converters", converters))
        self._begin(
            registry,
            UndeclaredActivities() if functions is None else registry.activities,
            PayloadConverter(trust_pickle=trust_pickle, converters=converting),
            interceptors=check_interceptors(each_of("interceptors", interceptors)),
            codecs=tuple(each_of("codecs", codecs)),
            guard=guard,
            jump_steps=jump_steps,
        )
        self._use_hash_seeds(hash_seeds, functions)

    @classmethod
    def of_runtime(cls, runtime: Runtime, *, hash_seeds: Iterable[int] = ()) -> Self:
        """A ``Replayer`` with the workflows, converters, codecs, interceptors and the guard of a runtime.

        Each activity that is called by its function counts as registered. What a ``TestEnvironment`` fakes is replayed
        as faked.

        Args:
            runtime: Open or not; what it has checked is not checked again.
            hash_seeds: See above.

        Raises:
            TypeError: It is no ``Runtime``.
            ValueError: As above.
        """
        if not isinstance(runtime, Runtime):
            raise TypeError(f"of_runtime takes a Runtime, not {runtime!r}")
        registry, settings = runtime._registry, runtime._settings
        replayer = cls.__new__(cls)
        replayer._begin(
            registry,
            UndeclaredActivities(registry.activities),
            runtime._converter,
            interceptors=runtime._interceptors,
            codecs=settings.codecs,
            guard=settings.guard,
            jump_steps=True,
        )
        replayer._use_hash_seeds(hash_seeds, None)
        return replayer

    def _begin(
        self,
        registry: Registry,
        activities: Mapping[str, ActivityDefinition],
        converter: PayloadConverter,
        *,
        interceptors: Sequence[Interceptor],
        codecs: Sequence[PayloadCodec],
        guard: Guard,
        jump_steps: bool,
    ) -> None:
        self._registry = registry
        self._activities = activities
        self._converter = converter
        self._interceptors = interceptors
        self._codecs = codecs
        self._guard: Guard = guard
        self._jumps = jump_steps
        self._unfinished: Container[int] = () if jump_steps else _Everything()

    def _use_hash_seeds(self, hash_seeds: Iterable[int], functions: Sequence[Any] | None) -> None:
        self._hash_seeds = tuple(each_of("hash_seeds", hash_seeds))
        for seed in self._hash_seeds:
            if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 32:
                raise ValueError(f"a hash seed is a whole number from 0 to 4294967295, not {seed!r}")
        self._spawned: Spawned | None = None
        if self._hash_seeds:
            self._spawned = spawned(
                self._registry.classes,
                functions,
                interceptors=self._interceptors,
                converters=self._converter.converters,
                trust_pickle=self._converter.trust_pickle,
                guard=self._guard,
                jump_steps=self._jumps,
            )

    def replay(self, history: HistoryLike, *, raise_on_failure: bool = True) -> ReplayReport:
        """Replay one history.

        Args:
            history: What ``fetch_history()`` gave; a document of ``everact journal export`` or of
                ``everact history --json``; or the path of a file with one.
            raise_on_failure: Raise when the code does not repeat it.

        Returns:
            A result for this process, and one for each hash seed.

        Raises:
            ReplayFailedError: The code does not repeat it, and ``raise_on_failure`` is set.
            TypeError: It is no history.
            ValueError: The file holds several.
            OSError: The file cannot be read.
        """
        one = history_of(history)
        return self._replay_all(lambda: [one], 1, None, raise_on_failure=raise_on_failure)

    def replay_many(
        self,
        histories: Iterable[HistoryLike] | str | os.PathLike[str],
        *,
        raise_on_failure: bool = True,
        progress: Progress | None = None,
    ) -> ReplayReport:
        """Replay several histories.

        Args:
            histories: Several of what ``replay`` takes, directories among them; or one directory: each ``.json`` and
                ``.jsonl`` file in it and below is read, and may hold a document a line.
            raise_on_failure: Raise when the code does not repeat one; at the end, when all are done.
            progress: Called with how many of the files are done, and how many there are.

        Raises:
            ReplayFailedError: The code does not repeat one, and ``raise_on_failure`` is set.
            TypeError: One is no history.
            ValueError: There is none.
            OSError: A file cannot be read.
        """
        each = each_of_many(histories)

        def read() -> Iterator[StoredHistory]:
            for number, one in enumerate(each):
                if progress is not None:
                    progress(number, len(each))
                yield from histories_of(one)

        return self._replay_all(read, len(each), progress, raise_on_failure=raise_on_failure)

    def replay_journal(
        self,
        journal: str | os.PathLike[str],
        *,
        status: str | None = None,
        types: Collection[str] | None = None,
        limit: int | None = None,
        raise_on_failure: bool = True,
        progress: Progress | None = None,
    ) -> ReplayReport:
        """Replay the runs of a journal, the newest first.

        It is only read, also while a runtime has it open: each run is read in a transaction of its own, which ends
        before the run is replayed.

        Args:
            journal: Its directory.
            status: Only runs of this status, such as ``running``.
            types: Only runs of these workflow types.
            limit: At most so many runs.
            raise_on_failure: Raise when the code does not repeat one; at the end, when all are done.
            progress: Called with how many runs are done, and how many there are at most.

        Raises:
            ReplayFailedError: The code does not repeat one, and ``raise_on_failure`` is set.
            NotAJournalError: There is no journal.
            JournalVersionError: Its format is not known.
            JournalAccessError: It cannot be read.
            JournalCorruptError: It is damaged so that its runs are not found; a damaged run is a failure instead.
            TypeError: An argument is of the wrong type.
            ValueError: The limit is not positive, or no status has this name.
        """
        check_status(status)
        if limit is not None:
            positive_count("limit", limit)
        wanted = None if types is None else frozenset(each_of("types", types))
        with JournalHistories(journal, status=status, types=wanted, limit=limit) as found:
            return self._replay_all(
                lambda: found.read(progress), found.most, progress, raise_on_failure=raise_on_failure
            )

    # --- how it is done

    def _replay_all(
        self,
        read: Callable[[], Iterable[StoredHistory]],
        count: int,
        progress: Progress | None,
        *,
        raise_on_failure: bool,
    ) -> ReplayReport:
        begun = time.perf_counter()
        results = _apart(lambda: list(self._results(read())))
        if progress is not None:
            progress(count, count)
        report = ReplayReport(tuple(results), time.perf_counter() - begun)
        if raise_on_failure:
            report.raise_for_failures()
        return report

    def _results(self, histories: Iterable[StoredHistory]) -> Iterator[ReplayResult]:
        with ExitStack() as stack:
            processes: list[ReplayProcess] = []
            for history in histories:
                if self._spawned is not None and not processes:
                    begin = self._spawned
                    processes += [
                        stack.enter_context(ReplayProcess(begin, seed)) for seed in self._hash_seeds
                    ]
                history = decoded(history, self._codecs)  # noqa: PLW2901
                yield self.result_of(history)
                if history.error is None:
                    for process in processes:
                        yield process.replay(history)

    def result_of(self, history: StoredHistory) -> ReplayResult:
        """Replay a history in this process."""
        begun = time.perf_counter()
        error: BaseException | None = history.error
        if error is None:
            error = self._error_of(history)
        return ReplayResult(
            history.workflow_type,
            history.workflow_id,
            history.run_id,
            history.source,
            history.events,
            time.perf_counter() - begun,
            failure=None if error is None else failure_from(error),
        )

    def _error_of(self, history: StoredHistory) -> BaseException | None:
        workflows = self._registry.workflows
        definition = workflows.get(history.workflow_type)
        if definition is None:
            return WorkflowNotRegisteredError(history.workflow_type, list(workflows))
        instance = new_instance(
            definition,
            self._activities,
            self._converter,
            self._guard,
            self._interceptors,
            workflows=workflows,
        )
        whole = Replay(instance, history.records, self._unfinished)
        clock = SystemClock()
        try:
            while not whole.go_on(clock):
                pass
        except WorkflowCrashedError as crash:
            return crash.error
        except Exception as error:  # noqa: BLE001  (records that belong to no run of Everact)
            return error
        finally:
            instance.discard()
        return None


class _Everything:
    """Holds every number: each step is one without an end, whose body has to be replayed."""

    def __contains__(self, _number: object) -> bool:
        return True


def _apart(work: Callable[[], T]) -> T:
    """Do it where no event loop runs: here, or in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    outcome: list[T] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as raised:  # noqa: BLE001  (it is the caller's)
            error.append(raised)

    thread = threading.Thread(target=run, name="everact-replay", daemon=True)
    thread.start()
    thread.join()
    if error:
        raise error[0]
    return outcome[0]
