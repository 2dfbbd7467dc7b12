"""The runtime: opens a journal, runs its workflows in this process, and is where to talk to them from."""

# The implementations below their overloads take `*args: *Ts`, or mypy refuses the overloads.
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from os import PathLike
from types import TracebackType
from typing import Any, Self, Unpack, overload

from ..journal.clock import Clock, SystemClock
from ..journal.codecs import PayloadCodec
from ..journal.encryption import settle_encryption
from ..journal.events import Header
from ..journal.payload_limits import PayloadLimits
from ..journal.payloads import PayloadConverter
from ..journal.store import JournalStore
from ..journal.type_converters import TypeConverter, TypeUpgrade
from . import start_policies
from .activity import in_activity
from .activity_handles import OwnActivityAccess
from .activity_pool import ActivityPool
from .addresses import address_of
from .async_blocks import AsyncBlock
from .client_interceptors import ClientOutboundInterceptor, StartWorkflowInput
from .collector import collector
from .context import running_instance
from .definitions import workflow_definition
from .doors import NO_DOOR, open_door
from .errors import RuntimeClosedError
from .event_loop import ForbiddenInWorkflowError
from .forks import open_runtimes
from .handles import WorkflowHandle
from .intercepted_clients import InterceptingMessenger
from .interceptors import Interceptor, check_interceptors
from .journal_access import JournalAccess
from .marks import Marks
from .memos import encode_memo
from .messenger import Messenger
from .options import (
    GRACE,
    WATCHDOG,
    StartOptions,
    WatchdogLimits,
    check_option_names,
    check_request_id,
    check_text,
    check_workflow_id,
    each_of,
    microseconds,
)
from .recovery import recover
from .registry import Registry
from .request_digests import request_digest
from .runtime_settings import Durability, RuntimeSettings
from .shard import MAX_CACHED, Shard
from .source_check import check_workflows
from .start_options import NOTHING, carried
from .starting import start_run
from .timing import Timing, real_timing
from .turn_guard import Guard, install_guards
from .typing import R, Ts, W, WorkflowClass
from .workflow_actor import WorkflowActor


class Runtime(OwnActivityAccess, JournalAccess, AsyncBlock):
    """Durable workflows in one process.

    Use it as ``async with Runtime(...) as runtime``: entering opens the journal and carries on with every run
    that has not ended; leaving lets running activities finish within a grace time and keeps everything else for
    the next start.
    """

    _written = "Runtime(...)"

    def __init__(
        self,
        journal: str | PathLike[str] | JournalStore,
        *,
        workflows: Iterable[type[Any]] = (),
        activities: Iterable[Any] = (),
        name: str = "local",
        durability: Durability = "fsync",
        trust_pickle: bool = False,
        codecs: Sequence[PayloadCodec] = (),
        converters: Iterable[TypeConverter[Any] | TypeUpgrade] = (),
        payload_limits: PayloadLimits | None = None,
        max_concurrent_activities: int = 1000,
        max_activity_threads: int = 32,
        max_cached_workflows: int = MAX_CACHED,
        grace: timedelta | float = GRACE,
        journal_quota: int | None = None,
        min_free_disk: int | None = None,
        watchdog: WatchdogLimits | None = WATCHDOG,
        door: bool = True,
        clock: Clock | None = None,
        guard: Guard = "warn",
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        """Check the declarations; nothing is opened yet.

        Args:
            journal: Directory of the journal, made if it does not exist; or an open store.
            workflows: Classes declared with ``@workflow.defn``.
            activities: Functions declared with ``@activity.defn``.
            name: The cluster part of addresses.
            durability: ``fsync``, or ``os``, which survives the death of the process but not of the machine.
            trust_pickle: Let values that have no other stored form go through cloudpickle. Whoever can write
                the journal can then run code here.
            codecs: Applied to every stored value and failure text on its way into the journal, in this order: first
                compression, then encryption.
            converters: How values of classes of your own are stored, and how old stored values become new ones.
            payload_limits: How large stored values may be; default ``PayloadLimits()``.
            max_concurrent_activities: Attempts of ``async def`` activities at a time.
            max_activity_threads: Attempts of plain ``def`` activities at a time.
            max_cached_workflows: Runs that keep their code in memory while they wait; the ones used least are dropped
                from it, and replayed when something happens to them.
            grace: How long leaving waits for running attempts, a timedelta or seconds.
            journal_quota: Bytes that the journal's data file may have, 1 MiB or more; None: 64 GiB. New work is
                refused before that, see ``docs/space.md``.
            min_free_disk: New work is refused while the journal's disk has fewer free bytes; None: 64 MiB, or an
                eighth of a disk of less than 512 MiB.
            watchdog: How long workflow code may block the event loop; None is without limit. See
                ``docs/supervision.md``.
            door: Let other processes of this user in, by a unix socket in the journal's directory.
            clock: Where time comes from; for tests.
            guard: What is done about workflow code that replays differently, see ``docs/determinism.md``. ``warn``:
                what its source shows is a ``DeterminismWarning``; files, network and processes in a turn raise
                ``ForbiddenInWorkflowError``. ``strict``: what is surely wrong in the source is a
                RegistrationError; clocks, random numbers, threads and the environment raise too. ``off``: neither.
            interceptors: Code of yours around what workflows, activities, and this object and its handles do; the first
                is the outermost. See ``docs/interceptors.md``.

        Raises:
            RegistrationError: Something is no workflow or activity, two have one name, or ``guard="strict"``
                refuses a workflow's source.
            TypeError: An argument is of the wrong type.
            ValueError: A limit is not positive or too small, a text is empty, or a word is unknown.
        """
        self._settings = RuntimeSettings(
            journal=journal,
            durability=durability,
            codecs=tuple(each_of("codecs", codecs)),
            payload_limits=payload_limits,
            max_concurrent_activities=max_concurrent_activities,
            max_activity_threads=max_activity_threads,
            max_cached_workflows=max_cached_workflows,
            grace=microseconds("grace", grace) / 1_000_000,
            journal_quota=journal_quota,
            min_free_disk=min_free_disk,
            watchdog=watchdog,
            door=door,
            clock=clock or SystemClock(),
            guard=guard,
        )
        self._converter = PayloadConverter(
            trust_pickle=trust_pickle, converters=each_of("converters", converters)
        )
        self._registry = Registry(each_of("workflows", workflows), each_of("activities", activities))
        check_workflows(self._registry.classes, guard)
        install_guards(guard)
        self._shard: Shard | None = None
        self._door = NO_DOOR
        self._leaving = False
        self._is_forsaken = False
        self._pid = 0
        self._store: JournalStore | None = None
        self.name = check_text("the name of a Runtime", name)
        self._interceptors = check_interceptors(each_of("interceptors", interceptors))
        #: That of the door: what comes from other processes has met the interceptors of its client.
        self._direct = Messenger(self.name, self._open, self._converter, self._registry.workflows)
        self._messenger: Any = self._direct
        self._clients: ClientOutboundInterceptor | None = None
        if self._interceptors:
            self._messenger = InterceptingMessenger(self._direct, self, self._interceptors)
            self._clients = self._messenger.chain

    # --- life

    async def __aenter__(self) -> Self:
        """Open the journal and carry on with every open run.

        Raises:
            NotAJournalError: The path holds something else.
            JournalVersionError: The journal's format is not known.
            JournalAccessError: It cannot be created, read or written.
            JournalLockedError: Another process has it open.
            JournalFullError: There is not even room to open it.
            JournalEncryptedError: It has been written with an encryption that no codec here has.
        """
        if self._is_forsaken:
            raise self._forked()
        if self._shard is not None:
            raise RuntimeError("this Runtime is already entered; make another one")
        loop = asyncio.get_running_loop()
        settings = self._settings
        store = settings.open_store()
        timing = self._timing(loop)
        try:
            settle_encryption(store, settings.codecs)
            shard = Shard(
                store,
                loop,
                settings.clock,
                converter=self._converter,
                workflows=self._registry.workflows,
                activities=self._registry.activities,
                limits=settings.space,
                codecs=settings.codecs,
                payload_limits=settings.payload_limits,
                max_cached=settings.max_cached_workflows,
                marks=Marks(timing.machine, settings.watchdog, settings.max_attempts),
                guard=settings.guard,
                interceptors=self._interceptors,
                timing=timing,
            )
            shard.dispatcher.pool = ActivityPool(
                loop,
                settings.clock,
                self._converter,
                shard.dispatcher.attempt_ended,
                runtime=self,
                coder=shard.coder,
                marks=shard.marks,
                max_async=settings.max_concurrent_activities,
                max_threads=settings.max_activity_threads,
                interceptors=self._interceptors,
                timing=timing,
            )
            recover(shard)
        except BaseException:
            store.close()
            raise
        self._store = store
        self._shard = shard
        self._pid = os.getpid()
        open_runtimes.add(self)
        collector.enter()
        if settings.door:
            self._door = open_door(self, store)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shard = self._shard
        if self._is_forsaken:
            return  # all of it is the parent's
        if shard is None or self._leaving:
            raise RuntimeClosedError("the Runtime is not open: it was not entered, or is already left")
        self._leaving = True
        try:
            shard.timers.close()
            shard.housekeeping.close(
                RuntimeClosedError("the Runtime was left; what was asked for was not finished")
            )
            await shard.dispatcher.pool.drain(self._settings.grace)
            if shard.isolation is not None:
                shard.isolation.end()
            shard.courier.stop()
            await shard.idle(self._settings.grace)
        finally:
            open_runtimes.discard(self)
            collector.leave()
            self._shard = None
            self._leaving = False
            shard.stop(
                RuntimeClosedError("the Runtime was left; the run is durable and goes on at the next start")
            )
            shard.close()
            shard.dispatcher.pool.close()
            shard.marks.close()
            try:
                await self._door.close()
            finally:
                if self._store is not None:
                    self._store.close()

    def _timing(self, loop: asyncio.AbstractEventLoop) -> Timing:
        """What the runtime waits by."""
        return real_timing(loop, self._settings.clock)

    def forsake(self) -> asyncio.AbstractEventLoop | None:
        """In a forked child: be closed without touching what is the parent's; returns the inherited loop."""
        shard, self._shard = self._shard, None
        if shard is None:
            return None
        self._is_forsaken = True
        shard.error = self._forked()
        self._door.forsake()
        shard.writer.forsake(shard.error)
        shard.marks.forget_all()
        return shard.loop

    def _forked(self) -> RuntimeClosedError:
        return RuntimeClosedError(
            f"this Runtime was entered in process {self._pid}, of which this process {os.getpid()} is a forked child: "
            f"enter a Runtime of its own on another journal after the fork, or start processes with the spawn or "
            f"forkserver method. A child that needs none should end by os._exit() or exec."
        )

    def _open(self) -> Shard:
        if running_instance() is not None:
            raise ForbiddenInWorkflowError(
                "a Runtime or one of its handles", "use it in an async activity, by activity.client()"
            )
        if self._is_forsaken:
            raise self._forked()
        # An activity that is let finish within the grace time may still send what it has to send.
        if self._shard is None or (self._leaving and not in_activity()):
            raise RuntimeClosedError(
                "the Runtime is not open: use it inside 'async with Runtime(...) as runtime:'"
            )
        if self._shard.loop is not asyncio._get_running_loop():
            raise RuntimeError(
                "this Runtime belongs to another event loop: from another thread send coroutines to its loop with "
                "asyncio.run_coroutine_threadsafe(...)"
            )
        self._shard.check()
        return self._shard

    # --- starting and finding

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
        """Start a workflow; returns once the start is durable.

        Args:
            workflow: The class, its run method, or its type name.
            *args: Arguments of its run method.
            **options: See ``StartOptions``.

        Raises:
            WorkflowNotRegisteredError: The runtime does not have this type.
            TypeError: Wrong number of arguments, or an unknown option.
            PayloadEncodeError: An argument does not fit its hint, or has no stored form.
            PayloadTooLargeError: An argument is over the limit; nothing was written.
            PayloadCodecError: A payload codec could not encode an argument; nothing was written.
            ValueError: The id is empty or too long, or an option has an unknown word or is out of its range.
            ImportError: A ``cron_schedule`` needs a package that is not installed.
            WorkflowAlreadyStartedError: The id is taken, and the options refuse it.
            JournalFullError: There is no room for new work; nothing was written.
            CommitUnknownError: Whether it is durable is unknown; repeat with the same id and request id.
        """
        if self._clients is None:
            return await self._start_workflow(workflow, args, options)
        self._open()
        name = self._registry.workflow(workflow).name
        start = StartWorkflowInput(name, list(args), options, {}, (name, workflow))
        return await self._clients.start_workflow(start)

    async def _start_workflow(
        self,
        workflow: Any,
        args: Sequence[Any],
        options: dict[str, Any],
        headers: tuple[Header, ...] = (),
    ) -> WorkflowHandle[Any, Any]:
        actor = await self._started(workflow, args, options, headers)
        return WorkflowHandle(self._messenger, actor.workflow_id, actor.run_id, actor.definition)

    async def _started(
        self, workflow: Any, args: Sequence[Any], options: dict[str, Any], headers: tuple[Header, ...] = ()
    ) -> WorkflowActor:
        """Start a workflow; returns its run once that is durable."""
        shard = self._open()
        definition = self._registry.workflow(workflow)
        check_option_names("start", options, StartOptions)
        if_running = options.get("if_running", "fail")
        if_closed = options.get("if_closed", "allow")
        start_policies.check(if_running, if_closed)
        workflow_id = check_workflow_id(options["id"]) if "id" in options else shard.new_id()
        request_id = check_request_id(options.get("request_id"))
        if request_id and "id" not in options:
            raise ValueError("request_id needs an id: a repeat is recognised by both")
        payloads, _ = definition.codec.encode_args(self._converter, args)
        actor, durable = start_run(
            shard,
            definition,
            workflow_id,
            payloads,
            encode_memo(self._converter, options.get("memo")),
            carried=carried(options, shard.now()) if options else NOTHING,
            is_new_id="id" not in options,
            if_running=if_running,
            if_closed=if_closed,
            request_id=request_id,
            digest=request_digest("start", definition.name, payloads, shard.digest_key)
            if request_id
            else b"",
            headers=headers,
        )
        await durable
        return actor

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
        """Start a workflow and wait for its result: ``spawn`` and ``result`` in one."""
        if self._clients is None:
            return await self._messenger.outcome(await self._started(workflow, args, options))
        handle = await self.spawn(workflow, *args, **options)
        return await handle.result()

    @overload
    def ref(self, workflow: str, kind: WorkflowClass[W, *Ts, R], /) -> WorkflowHandle[W, R]: ...
    @overload
    def ref(self, workflow: str, /) -> WorkflowHandle[Any, Any]: ...
    def ref(self, workflow: str, kind: Any = None, /) -> Any:
        """A handle by workflow id or address; whether it exists shows when it is used.

        Args:
            workflow: An id, or an address ``everact://<cluster>/<workflow id>[/<run id>]``.
            kind: The workflow class, for typed calls.

        Raises:
            AddressError: It is no address, or one of another cluster.
            RegistrationError: ``kind`` is no workflow class.
        """
        definition = workflow_definition(kind) if kind is not None else None
        address = address_of(workflow, self.name)
        handle: WorkflowHandle[Any, Any] = WorkflowHandle(
            self._messenger, address.workflow_id, address.run_id, definition
        )
        return handle
