"""The runtime of a test environment: the production one, which waits by virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Self, TypedDict, TypeVar

from ..actors.errors import RuntimeClosedError
from ..actors.interceptors import Interceptor
from ..actors.journal_access import JournalAccess
from ..actors.options import WatchdogLimits
from ..actors.runtime import Runtime
from ..actors.runtime_settings import Durability
from ..actors.shard import Shard
from ..actors.timing import Timing
from ..actors.turn_guard import Guard
from ..journal.clock import SystemClock
from ..journal.codecs import PayloadCodec
from ..journal.payload_limits import PayloadLimits
from ..journal.type_converters import TypeConverter, TypeUpgrade
from .clock import VirtualLater, VirtualLooks
from .crashes import Lives
from .errors import LEFT, NOT_OPEN

T = TypeVar("T")


class RuntimeOptions(TypedDict, total=False):
    """Options of the environment's ``Runtime``; they mean there and here the same.

    Attributes:
        name: See ``Runtime``, as for all others; those with another default here say so.
        durability: Default ``os``: a test's journal need not survive a power failure.
        trust_pickle: See ``Runtime``.
        codecs: See ``Runtime``.
        converters: See ``Runtime``.
        payload_limits: See ``Runtime``.
        max_concurrent_activities: See ``Runtime``.
        max_activity_threads: See ``Runtime``.
        max_cached_workflows: See ``Runtime``.
        grace: Default 0: what still runs at the end of a test is cut.
        watchdog: See ``Runtime``. It looks at real time; None while you debug.
        guard: Default ``strict``.
        interceptors: See ``Runtime``.
        door: Default False.
    """

    name: str
    durability: Durability
    trust_pickle: bool
    codecs: Sequence[PayloadCodec]
    converters: Iterable[TypeConverter[Any] | TypeUpgrade]
    payload_limits: PayloadLimits | None
    max_concurrent_activities: int
    max_activity_threads: int
    max_cached_workflows: int
    grace: timedelta | float
    watchdog: WatchdogLimits | None
    guard: Guard
    interceptors: Sequence[Interceptor]
    door: bool


class VirtualRuntime(Runtime):
    """A runtime that waits by virtual time; what has to do with the machine goes by the machine's."""

    _virtual: tuple[VirtualLater, VirtualLooks]
    _was_entered = False
    _lives: Lives | None = None
    _present: Callable[[], VirtualRuntime]  # of the life that goes on

    async def _ask(self, question: Callable[[JournalAccess], Awaitable[T]]) -> T:
        """What a test asks of a runtime that is to crash is asked again in the next life."""
        if self._lives is None or not self._lives.plan.is_expected:
            return await question(self)
        return await self._lives.through(lambda: question(self._present()))

    def _timing(self, loop: asyncio.AbstractEventLoop) -> Timing:
        del loop  # it would wait by real time
        return Timing(*self._virtual, SystemClock())

    def _open(self) -> Shard:
        if self._shard is None and not self._is_forsaken:
            raise RuntimeClosedError(LEFT if self._was_entered else NOT_OPEN)
        return super()._open()

    async def __aenter__(self) -> Self:
        self._was_entered = True
        return await super().__aenter__()
