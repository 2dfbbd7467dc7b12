"""Open the environment of a journal's directory, for this process's writer or for a reader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

import lmdb

from .disk_trouble import write_error
from .errors import JournalLockedError, NotAJournalError
from .fault_points import fault_point
from .left_socket import clear_socket
from .lmdb_format import (
    DATA_FILE,
    LOCK_TABLE,
    MAX_DATABASES,
    Found,
    inspect,
    is_blank,
    make_directory,
    open_databases,
    open_error,
    refuse_other_file,
    sync_directory,
)
from .lmdb_lock import (
    LOCK_FILE,
    Opened,
    SharedEnvironment,
    WriterLock,
    register,
    registry_lock,
    shared_environment,
)
from .swap import clear_workplaces, files_of, is_unsettled, openers, settle

Durability = Literal["fsync", "os"]

_MAX_READERS = 1024
#: LMDB's table of readers: a slot for each, and its head.
_TABLE_BYTES = 64 * (_MAX_READERS + 2)


class Options(NamedTuple):
    """How an environment is opened.

    Attributes:
        writable: Whether it can be written.
        map_size: Bytes of address space for the data file.
        durability: Whether commits are synced to the disk.
    """

    writable: bool
    map_size: int
    durability: Durability


def attach_reader(path: str, options: Options) -> SharedEnvironment:
    """Return the environment of this directory, opened read-only if this process has not opened it yet.

    Raises:
        NotAJournalError: There is no journal.
        JournalVersionError: The journal has another format version.
        JournalAccessError: The journal cannot be read.
    """
    if not Path(path).is_dir():
        refuse_other_file(path, writer=False)
        raise NotAJournalError(f"there is no journal at {path!r}: check the path")
    with registry_lock():
        key = _key(path)
        shared = shared_environment(key)
        if shared is None:
            with openers(path):
                if inspect(path, locked=False) is not Found.JOURNAL:
                    raise NotAJournalError(
                        f"there is no journal in {path!r} yet: a process that writes it makes it"
                    )
                shared = SharedEnvironment(path, key, open_environment(path, options), options)
            register(shared)
        shared.attach()
        return shared


def attach_writer(path: str, options: Options) -> SharedEnvironment:
    """Take the lock of this directory and return its environment; makes the journal if there is none.

    Raises:
        JournalLockedError: Another process, or another store in this process, writes it.
        NotAJournalError: The path holds something else; nothing was changed.
        JournalVersionError: The journal has another format version; nothing was changed.
        JournalAccessError: The directory cannot be created, read or written.
    """
    make_directory(path)
    with registry_lock():
        key = _key(path)
        shared = shared_environment(key)
        if shared is not None and shared.writer is not None:
            raise JournalLockedError(path, os.getpid())
        # With a lock file there may be a writer: lock first, look then. Without one there is no writer of
        # ours, and nothing may be created before it is clear that the directory can be ours.
        if shared is None and not _exists(Path(path, LOCK_FILE)):
            _check_writable(path)
        lock = WriterLock(path)
        try:
            clear_workplaces(path)
            clear_socket(path)
            if shared is None:
                _check_writable(path)
                # Before the first commit: a reader that finds a name here takes part in the reader table.
                lock.state_owner()
                fault_point("journal.open.before")
                opened = open_environment(path, options)
                shared = SharedEnvironment(path, key, opened, options)
            else:
                lock.state_owner()
        except BaseException:
            lock.release()
            raise
        register(shared)
        shared.writer = lock
        shared.attach()
    if shared.options != options or not shared.is_open or _is_other(path, shared):
        try:
            shared.replace(lambda: open_environment(path, options), options)
        except BaseException:
            shared.release(writer=True)
            raise
    return shared


def _is_other(path: str, shared: SharedEnvironment) -> bool:
    """Whether another process has rewritten the files, or was about to, while readers here kept the old ones open."""
    return files_of(path) != shared.opened.files or is_unsettled(path)


def _exists(place: Path) -> bool:
    """Whether it is there; what cannot be looked at is not, and says so when it is opened."""
    try:
        return place.exists()
    except PermissionError:
        return False


def _check_writable(path: str) -> None:
    """Refuse a directory that is not ours or cannot be written, before anything is created in it."""
    inspect(path, locked=True)
    for place, wanted in (
        (Path(path), os.W_OK | os.X_OK),
        (Path(path, DATA_FILE), os.R_OK | os.W_OK),
        (Path(path, LOCK_TABLE), os.R_OK | os.W_OK),
    ):
        if _exists(place) and not os.access(place, wanted):
            raise write_error(path, str(place), "Permission denied")


def open_environment(path: str, options: Options) -> Opened:
    """Open the environment and its databases; the caller has looked at the directory.

    Raises:
        JournalAccessError: LMDB cannot open it.
    """
    writable, map_size, durability = options
    data, table = Path(path, DATA_FILE), Path(path, LOCK_TABLE)
    durable = durability == "fsync"
    # A reader must be seen by the writer. Where it cannot be, as nobody made the table yet and this user may not,
    # there is no writer either.
    lock = writable or table.exists() or os.access(path, os.W_OK)
    try:
        if writable:
            settle(path)
        if lock:
            _allocate(table)
        if writable and data.exists() and is_blank(data):
            # LMDB begins anew in an empty file, but not in the zeros that a power cut can leave.
            os.truncate(data, 0)
        env = lmdb.open(
            path,
            map_size=map_size,
            subdir=True,
            readonly=not writable,
            create=False,
            lock=lock,
            mode=0o660,
            sync=durable,
            metasync=durable,
            readahead=True,
            writemap=False,
            max_dbs=MAX_DATABASES,
            max_readers=_MAX_READERS,
            max_spare_txns=0,
            lib_version=0,
        )
    except (lmdb.Error, OSError, MemoryError) as error:
        raise open_error(path, error) from error
    try:
        # Slots of readers that were killed would keep their pages from being used again.
        env.reader_check()
        opened = open_databases(env, create=writable)
        opened = opened._replace(files=files_of(path))
        if writable and durable:
            sync_directory(path)
    except (lmdb.Error, OSError) as error:
        env.close()
        raise open_error(path, error) from error
    return opened


def _allocate(table: Path) -> None:
    """Give the table of readers all of its blocks.

    LMDB makes it as a sparse file and writes it through memory: on a full disk, to touch a page of it that has no
    block kills the process (SIGBUS).
    """
    # Not without need: closing a file of this process ends the locks that it has on that file.
    if _exists(table) and (table.stat().st_blocks * 512 >= _TABLE_BYTES or not os.access(table, os.W_OK)):
        return
    fd = os.open(table, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
    try:
        os.posix_fallocate(fd, 0, _TABLE_BYTES)
    finally:
        os.close(fd)


def _key(path: str) -> tuple[int, int]:
    status = Path(path).stat()
    return status.st_dev, status.st_ino
