"""What a runtime was told when it was made: how its journal is kept, and the limits of what it does."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import Literal

from ..journal.clock import Clock
from ..journal.codecs import PayloadCodec
from ..journal.lmdb_format import check_path
from ..journal.lmdb_store import MAP_SIZE, LmdbStore
from ..journal.payload_limits import PayloadLimits
from ..journal.space import LEAST_QUOTA, SpaceLimits
from ..journal.store import JournalStore
from .options import WatchdogLimits, byte_count, positive_count
from .turn_guard import GUARDS, Guard

Durability = Literal["fsync", "os"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeSettings:
    """Arguments of a ``Runtime``, checked; they are explained there.

    Attributes:
        grace: In seconds.

    Raises:
        TypeError: One is of the wrong type.
        ValueError: A limit is not positive or too small, or a word is unknown.
    """

    journal: str | PathLike[str] | JournalStore
    durability: Durability
    codecs: tuple[PayloadCodec, ...]
    payload_limits: PayloadLimits | None
    max_concurrent_activities: int
    max_activity_threads: int
    max_cached_workflows: int
    grace: float
    journal_quota: int | None
    min_free_disk: int | None
    watchdog: WatchdogLimits | None
    door: bool
    clock: Clock
    guard: Guard

    def __post_init__(self) -> None:
        if not isinstance(self.journal, str | PathLike | JournalStore):
            raise TypeError(f"journal must be a path or a store, not {self.journal!r}")
        if self.journal == "":
            raise ValueError("journal must name a directory, not ''")
        if not isinstance(self.journal, JournalStore):
            check_path(str(fspath(self.journal)))
        positive_count("max_concurrent_activities", self.max_concurrent_activities)
        positive_count("max_activity_threads", self.max_activity_threads)
        positive_count("max_cached_workflows", self.max_cached_workflows)
        if self.durability not in ("fsync", "os"):
            raise ValueError(f"durability must be 'fsync' or 'os', not {self.durability!r}")
        if self.guard not in GUARDS:
            raise ValueError(f"guard must be 'warn', 'strict' or 'off', not {self.guard!r}")
        if self.journal_quota is not None:
            byte_count("journal_quota", self.journal_quota, LEAST_QUOTA)
        if self.min_free_disk is not None:
            byte_count("min_free_disk", self.min_free_disk, 0)
        if self.watchdog is not None and not isinstance(self.watchdog, WatchdogLimits):
            raise TypeError(f"watchdog must be a WatchdogLimits or None, not {self.watchdog!r}")
        if not isinstance(self.door, bool):
            raise TypeError(f"door must be True or False, not {self.door!r}")
        for codec in self.codecs:
            if not isinstance(codec, PayloadCodec):
                raise TypeError(f"codecs must be PayloadCodec objects, not {codec!r}")
        if self.payload_limits is not None and not isinstance(self.payload_limits, PayloadLimits):
            raise TypeError(f"payload_limits must be a PayloadLimits, not {self.payload_limits!r}")

    @property
    def space(self) -> SpaceLimits:
        """How much room the journal may take."""
        return SpaceLimits(self.journal_quota, self.min_free_disk)

    @property
    def max_attempts(self) -> int:
        """How many attempts run at a time at most."""
        return self.max_concurrent_activities + self.max_activity_threads

    def open_store(self) -> JournalStore:
        """The journal's store; errors as of entering a ``Runtime``."""
        if isinstance(self.journal, JournalStore):
            return self.journal
        # The quota is the size of the map, so that nothing at all makes the file larger.
        return LmdbStore(
            fspath(self.journal), map_size=self.space.map_size(MAP_SIZE), durability=self.durability
        )
