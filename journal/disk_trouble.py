"""Why a file, or a journal's directory, cannot be opened or written, and what to do: no room, read-only, no rights."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from .errors import JournalAccessError, JournalFullError
from .space import disk_of

#: Bytes that opening a journal writes, at most: its empty tables, or the pages that a new epoch needs.
OPENING = 256 << 10

#: What to do about an error of the system.
_ADVICE = {
    errno.EACCES: "change its rights, or give another place",
    errno.EBUSY: "it is in use: try again, or give another place",
    errno.EDQUOT: "this user's quota of the disk is used up: make room, or give another place",
    errno.EEXIST: "it is there already and is not written over: give a new name",
    errno.EFBIG: "this process may not make files so large (ulimit -f): raise that limit",
    errno.EIO: "the disk has failed, look into the system's log: give a place on another disk",
    errno.EISDIR: "it is a directory: give a file",
    errno.ELOOP: "links lead in a circle: check the path",
    errno.EMFILE: "this process has too many files open (ulimit -n): raise that limit",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ENOENT: "check the path, and that its directory is there",
    errno.ENOSPC: "its disk is full: make room, or give a place on another disk",
    errno.ENOTDIR: "a part of its path is not a directory: check the path",
    errno.EPERM: "change its rights, or give another place",
    errno.EPIPE: "the program that should read it has ended",
    errno.EROFS: "its file system is mounted read-only: mount it for writing, or give another place",
}


def code_of(error: BaseException | None) -> int:
    """The system's number of an error; 0 when it is none of the system's."""
    code = error.code if isinstance(error, lmdb.Error) else getattr(error, "errno", 0)
    return code if isinstance(code, int) and code > 0 else 0


def advice(error: BaseException) -> str:
    """What to do about an error of the system; empty when that is not known."""
    return _ADVICE.get(code_of(error), "")


def said(what: str, error: OSError | lmdb.Error) -> str:
    """What cannot be done, why, and what to do.

    Args:
        what: As in "the file 'a' cannot be written".
        error: What the system says.
    """
    code = code_of(error)
    return (
        f"{what} ({os.strerror(code) if code else error}): {advice(error) or 'check the path and the disk'}"
    )


@contextmanager
def saying(what: str) -> Generator[None]:
    """Turn an error of the system into words; arguments as of ``said``.

    Raises:
        JournalAccessError: There was one.
    """
    try:
        yield
    except OSError as error:
        raise JournalAccessError(said(what, error)) from error


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
    try:
        data = Path(path, "data.mdb")
        used = data.stat().st_size if data.exists() else 0
        free, size = disk_of(path)
    except OSError:
        return None
    if isinstance(cause, lmdb.MapFullError):
        return JournalFullError(path, "map", used, 0, 0)
    largest, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The file may be one of the others: what is left of the limit is then not what is left for the data.
    if code_of(cause) == errno.EFBIG and largest != resource.RLIM_INFINITY:
        return JournalFullError(path, "file", largest, 0, 0)
    if cause is not None and largest != resource.RLIM_INFINITY and largest - used < OPENING:
        return JournalFullError(path, "file", largest, max(0, largest - used), 0)
    return JournalFullError(path, "disk", size, free, 0) if free < OPENING else None


def why_failed(path: str, error: BaseException) -> str:
    """What to add to the error of a commit: that there is no room, or what the system's number means."""
    known = isinstance(error, lmdb.Error | OSError)
    full = full_error(path, error) if known else None
    text = full.room if full is not None else advice(error)
    return f" ({text})" if text else ""


def is_read_only(path: str) -> bool:
    """Whether the file system of this directory is mounted read-only."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False
