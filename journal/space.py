"""How much room a journal has, and how much of it is kept back (R22).

New data goes into free pages inside the data file first, then the file grows. So the room is the free pages, and what
the largest size of the file and its disk let it grow.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from typing import NamedTuple

import lmdb

from .errors import JournalFullError

#: Kept back for what is under way: so many bytes, at most this share of the file's largest size, or of the disk.
RESERVE = 64 << 20
RESERVE_SHARE = 8
#: Intake that was stopped begins again when this share of the reserve is there beside it, or it would flutter.
SLACK_SHARE = 8

#: A smaller journal would have no room beside what it needs for itself.
LEAST_QUOTA = 1 << 20

UNLIMITED = 1 << 62
_META_PAGES = 2
#: Least room beyond a quota for moving the log into the tables, in bytes.
MOVING = 16 << 20


class Space(NamedTuple):
    """The room of a journal, in bytes.

    Attributes:
        used: Pages that hold something.
        size: The data file, with its free pages.
        limit: The largest size that the file may have.
        limited_by: What sets it: ``"map"``, or ``"file"`` (the process's limit on the size of files).
        disk_free: What its file system still lets this user write.
        disk_size: The file system.
    """

    used: int
    size: int
    limit: int = UNLIMITED
    limited_by: str = "map"
    disk_free: int = UNLIMITED
    disk_size: int = UNLIMITED

    @property
    def room(self) -> int:
        """What can still be written, at most."""
        return max(0, self.size - self.used + min(self.limit - self.size, self.disk_free))


class Spare(NamedTuple):
    """What new work may use, by the scarcest of the limits.

    Attributes:
        what: What is scarce: ``"quota"``, ``"map"``, ``"file"`` or ``"disk"``.
        total: Its size in bytes.
        left: What is left of it in bytes.
        reserve: What is kept back of that for work under way.
    """

    what: str
    total: int
    left: int
    reserve: int

    @property
    def bytes(self) -> int:
        """What new work may use; negative when work under way has begun to use the reserve."""
        return self.left - self.reserve

    @property
    def slack(self) -> int:
        """What must be spare before intake that was stopped begins again."""
        return self.reserve // SLACK_SHARE

    def error(self, path: str, needed: int = 0) -> JournalFullError:
        """What a caller gets whose work is refused.

        Args:
            path: The journal.
            needed: Bytes of a message that is too large although smaller ones are taken; 0 when none is taken.
        """
        return JournalFullError(path, self.what, self.total, self.left, self.reserve, needed)


class SpaceLimits(NamedTuple):
    """What the user allows a journal.

    Attributes:
        quota: Bytes that the data file may have, or None.
        min_free_disk: Bytes to leave free on its file system; None: ``RESERVE``, on a small one a share of it.
    """

    quota: int | None = None
    min_free_disk: int | None = None

    def map_size(self, usual: int) -> int:
        """How large the data file may be at all.

        Beyond a quota there is room to move the log, without which no purge makes room.

        Args:
            usual: Without a quota, bytes.
        """
        return usual if self.quota is None else self.quota + max(self.quota // 2, MOVING)

    def spare(self, space: Space) -> Spare:
        """What of this room new work may use."""
        limit, what = space.limit, space.limited_by
        if self.quota is not None and (what == "map" or self.quota <= limit):
            limit, what = (
                min(limit, self.quota),
                "quota",
            )  # a larger map is one that the file has needed before
        by_limit = Spare(what, limit, max(0, limit - space.used), reserve_of(limit))
        disk_reserve = self.min_free_disk
        if disk_reserve is None:
            disk_reserve = reserve_of(space.disk_size)
        by_disk = Spare("disk", space.disk_size, space.disk_free + space.size - space.used, disk_reserve)
        return min(by_limit, by_disk, key=lambda spare: spare.bytes)

    def room(self, space: Space) -> int:
        """What work under way may use."""
        return space.room if self.quota is None else min(space.room, self.quota - space.used)


def reserve_of(total: int) -> int:
    """What is kept back of so many bytes."""
    return min(RESERVE, total // RESERVE_SHARE)


def measure(
    path: str, env: lmdb.Environment, txn: lmdb.Transaction[bytes], databases: Iterable[lmdb._Database]
) -> Space:
    """Look at an environment; takes some 10 microseconds.

    Free pages are counted by what is not in use, so those that a reader still holds back count as free.

    Args:
        path: Its directory.
        env: The environment.
        txn: Any transaction of it.
        databases: Its named databases.
    """
    info = env.info()
    stats = [txn.stat(db) for db in databases]
    main = env.stat()
    page: int = main["psize"]
    used = _META_PAGES + sum(
        stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in (main, *stats)
    )
    limit, what = info["map_size"], "map"
    largest_file, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest_file not in (-1, resource.RLIM_INFINITY) and largest_file < limit:
        limit, what = largest_file, "file"
    disk_free, disk_size = disk_of(path)
    return Space(used * page, (info["last_pgno"] + 1) * page, limit, what, disk_free, disk_size)


def disk_of(path: str) -> tuple[int, int]:
    """Free bytes, for this user, and size of a directory's file system; ``UNLIMITED`` if it does not say."""
    disk = os.statvfs(path)
    if not disk.f_blocks:
        return UNLIMITED, UNLIMITED
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
