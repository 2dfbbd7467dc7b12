"""Putting a rewritten data file in the place of the old one, so that after a kill there is one of them, whole.

The new file waits in a directory of its own. Once that has its final name, the new file is the journal: whoever opens
the journal for writing next carries out what is left to do. LMDB's table of readers goes with the old file, because
readers of the old file must not stand in the way of the new one: readers in other processes go on with the old file and
the old table until they notice.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import JournalAccessError
from .fault_points import fault_point
from .lmdb_format import DATA_FILE, LOCK_TABLE, sync_directory

#: The directory with the new file, once it is complete; and those in which one is being made.
READY = "rewrite.ready"
WORKPLACE = "rewriting-"
#: Processes that are just opening the journal are waited for so long, in seconds.
PATIENCE = 5.0
_PAUSE = 0.005


@contextmanager
def openers(path: str) -> Generator[None]:
    """Hold while the files of a journal are opened for reading: they are not replaced meanwhile.

    Raises:
        JournalAccessError: The directory cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise JournalAccessError(
            f"the journal {path!r} cannot be read by this user ({error.strerror}): change the rights of {path!r}"
        ) from error
    try:
        with suppress(OSError):  # a file system without locks has no writer either
            fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


@contextmanager
def no_openers(path: str) -> Generator[None]:
    """Hold while the files are replaced.

    Raises:
        JournalAccessError: A process that is opening the journal does not get on.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise JournalAccessError(
                        f"another process has been opening the journal {path!r} for {PATIENCE:g} s: let it go on, or "
                        f"end it (`fuser -v {path}` names it), and try again"
                    ) from None
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(fd)


def files_of(path: str) -> tuple[int, int]:
    """Inodes of a journal's data file and of its table of readers; 0 for one that is not there."""
    return _inode(os.path.join(path, DATA_FILE)), _inode(os.path.join(path, LOCK_TABLE))  # noqa: PTH118  (per read)


def _inode(name: str) -> int:
    try:
        return os.stat(name).st_ino  # noqa: PTH116
    except OSError:
        return 0


def is_unsettled(path: str) -> bool:
    """Whether a rewrite has left something to do."""
    return Path(path, READY).exists()


def clear_workplaces(path: str) -> None:
    """Take away what rewrites have left that were cut off; the caller has just got the writer's lock."""
    for place in Path(path).glob(WORKPLACE + "*"):
        shutil.rmtree(place, ignore_errors=True)


def make_ready(path: str, place: Path) -> None:
    """From here on the file in this directory is the journal; nothing may be written to the old one any more."""
    place.rename(Path(path, READY))
    sync_directory(path)
    fault_point("rewrite.ready")


def withdraw(path: str) -> None:
    """The old file stays the journal, if it still has its name."""
    ready = Path(path, READY)
    if ready.exists():
        shutil.rmtree(ready)
        sync_directory(path)


def settle(path: str) -> None:
    """Carry out what a rewrite has left to do; the caller holds the writer's lock, and nothing is open.

    Raises:
        JournalAccessError: A process that is opening the journal does not get on.
    """
    if not is_unsettled(path):
        return
    with no_openers(path):
        new = Path(path, READY, DATA_FILE)
        if new.exists():
            Path(path, LOCK_TABLE).unlink(missing_ok=True)
            fault_point("rewrite.unlinked")
            new.replace(Path(path, DATA_FILE))
            fault_point("rewrite.renamed")
            sync_directory(path)
        shutil.rmtree(new.parent)
