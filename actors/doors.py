"""How a runtime lets other processes in: by a door that a higher room builds (docs/adr/0007)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .._wiring import builders
from ..journal.lmdb_store import LmdbStore
from ..journal.store import JournalStore

if TYPE_CHECKING:
    from .runtime import Runtime


class Door:
    """The way in for other processes; this one is none."""

    async def close(self) -> None:
        """Let the last answers go, then shut it."""

    def forsake(self) -> None:
        """In a forked child: let go of what is the parent's without changing anything for it."""


NO_DOOR = Door()


#: Opens the door of an entered runtime beside the journal in a directory; never raises.
DoorBuilder = Callable[["Runtime", str], Door]


def open_door(runtime: Runtime, store: JournalStore) -> Door:
    """Open the door of a runtime; a journal in memory has no place for one."""
    builder: DoorBuilder | None = builders.get("door")
    return builder(runtime, store.path) if builder is not None and isinstance(store, LmdbStore) else NO_DOOR
