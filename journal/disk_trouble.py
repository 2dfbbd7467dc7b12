"""Why the directory of a journal cannot be opened for writing: no room, read-only, or no rights."""

from __future__ import annotations

import os
from pathlib import Path

import lmdb

from .errors import JournalAccessError, JournalFullError
from .space import disk_of

#: Bytes that opening a journal writes, at most: its empty tables, or the pages that a new epoch needs.
OPENING = 256 << 10


def write_error(path: str, place: str, reason: str) -> JournalAccessError:
    """The error for a file or directory that cannot be written.

    Args:
        path: The journal's directory.
        place: What cannot be written.
        reason: What the system says; may be empty.
    """
    full = full_error(path)
    if full is not None:
        return full
    if is_read_only(path):
        return JournalAccessError(
            f"the journal {path!r} cannot be written, its file system is mounted read-only ({place!r}): "
            f"mount it for reading and writing, or choose another directory"
        )
    return JournalAccessError(
        f"the journal {path!r} cannot be written by this user ({reason}: {place!r}): "
        f"change the owner or the rights, or choose another directory"
    )


def full_error(path: str, cause: BaseException | None = None) -> JournalFullError | None:
    """The error for an open that failed for want of room; None when there was some.

    Args:
        path: The journal's directory.
        cause: What was raised. Of errors of the disk the kind is not asked: a short write is an I/O error.
    """
    if isinstance(cause, lmdb.MapFullError):
        size = Path(path, "data.mdb").stat().st_size
        return JournalFullError(path, "map", size, 0, 0)
    try:
        free, size = disk_of(path)
    except OSError:
        return None
    return JournalFullError(path, "disk", size, free, 0) if free < OPENING else None


def is_read_only(path: str) -> bool:
    """Whether the file system of this directory is mounted read-only."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False
