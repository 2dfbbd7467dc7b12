"""Who may write a journal directory, and the one LMDB environment that this process has open on it.

LMDB's own locks belong to the process: opening an environment twice in one process, or closing an inherited
one in a forked child, releases locks and reader slots that are still in use. Therefore

* a writer holds ``flock`` on ``everact.lock``. The lock belongs to the open file, which a forked child
  inherits; the child closes it at once, or it would keep the lock after its parent's SIGKILL;
* environments are registered by device and inode of the directory and shared by everything in this process;
* a forked child forgets the environments of its parent and never closes them.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

import lmdb

from .disk_trouble import write_error
from .errors import JournalAccessError, JournalClosedError, JournalDiskError, JournalLockedError
from .tables import Table

#: Name of the lock file in the journal's directory. It is never deleted: that would allow two owners.
LOCK_FILE = "everact.lock"
#: It has fewer bytes than this.
_NOTES = 300


class WriterLock:
    """The right to write one journal, held until ``release`` or the end of the process.

    Args:
        directory: The journal's directory; must exist. The lock file is created if it is missing.

    Raises:
        JournalLockedError: Another process, or another store in this one, holds the lock.
        JournalAccessError: The lock file cannot be created, opened or locked.
    """

    def __init__(self, directory: str) -> None:
        path = str(Path(directory, LOCK_FILE))
        self._stated = False
        try:
            # O_CLOEXEC: a program that this process starts must not inherit the lock.
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        except OSError as error:
            raise write_error(directory, path, str(error.strerror)) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _owner(self._fd)
            os.close(self._fd)
            raise JournalLockedError(directory, pid) from None
        except OSError as error:
            os.close(self._fd)
            raise JournalAccessError(
                f"the file system of {path!r} has no file locks ({error.strerror}): "
                f"put the journal on a local disk"
            ) from error

    def state_owner(self, journal_id: str = "") -> None:
        """Write into the lock file who holds it, for the error message of others.

        Args:
            journal_id: Of the journal, once it is made; from then on its data file is missed when it is gone.
        """
        self._stated = True
        self._write(f"{os.getpid()} {_start_mark(os.getpid())}", journal_id)

    def _write(self, owner: str, journal_id: str = "") -> None:
        # On a full disk the journal must open all the same; others then learn no pid.
        with suppress(OSError):
            journal_id = journal_id or _parsed(os.pread(self._fd, _NOTES, 0)).journal_id
            notes = f"{owner}\n{journal_id}\n".encode() if owner or journal_id else b""
            os.pwrite(self._fd, notes, 0)
            os.ftruncate(self._fd, len(notes))

    def release(self) -> None:
        """Give the lock back; safe to call twice."""
        if self._fd >= 0:
            if self._stated:
                self._write("")
            # Closing is not enough: a child forked a moment ago may not have closed its copy yet.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self.forget()

    def forget(self) -> None:
        """In a forked child: close the inherited file. Unlocking it would unlock it for the parent too."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def owner_of(directory: str) -> int | None:
    """The process that has a journal open for writing, as its lock file names it; None when there is none.

    Raises:
        OSError: The lock file cannot be read.
    """
    try:
        fd = os.open(str(Path(directory, LOCK_FILE)), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _owner(fd)
    finally:
        os.close(fd)


class Notes(NamedTuple):
    """What a lock file says.

    Attributes:
        owner: The process that has the journal open for writing, or was killed when it had.
        journal_id: The journal that was made in this directory; empty when none was yet.
    """

    owner: str
    journal_id: str


def read_notes(directory: str) -> Notes:
    """What the lock file of a journal's directory says; to whoever may not read it, that there may be a writer.

    Raises:
        OSError: There is none.
    """
    try:
        return _parsed(Path(directory, LOCK_FILE).read_bytes())
    except PermissionError:
        return Notes("unknown", "")


def _parsed(notes: bytes) -> Notes:
    owner, journal_id, *_ = (*notes.decode("ascii", "replace").split("\n"), "", "")
    return Notes(owner.strip(), journal_id.strip())


def _owner(fd: int) -> int | None:
    """The process that the lock file names, unless it is left over from an earlier owner."""
    pid, _, mark = _parsed(os.pread(fd, _NOTES, 0)).owner.partition(" ")
    if not pid.isdigit() or mark != _start_mark(int(pid)):
        return None
    return int(pid)


def _start_mark(pid: int) -> str:
    """What tells a process from a later one with the same id: when it started, and in which boot."""
    try:
        # The second field is the program's name in brackets and may hold anything; start time is the 22nd.
        started = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, IndexError):
        return "unknown"
    return f"{started} {boot}"


class Opened(NamedTuple):
    """An open environment and its databases.

    Attributes:
        files: Inodes of its data file and of its table of readers; others have their names once it was rewritten.
    """

    env: lmdb.Environment
    meta: lmdb._Database
    logs: tuple[lmdb._Database, lmdb._Database]
    tables: dict[Table, lmdb._Database]
    files: tuple[int, int] = (0, 0)

    @property
    def databases(self) -> tuple[lmdb._Database, ...]:
        """All databases that have a name."""
        return (self.meta, *self.logs, *self.tables.values())


class SharedEnvironment:
    """The one environment that this process has open on a directory; ``with shared as opened`` to read.

    The environment stays the same inside the ``with`` block. ``replace`` and the last ``release`` wait for
    the blocks in other threads, so they must be short.

    Args:
        path: The journal's directory, for messages.
        key: Device and inode of the directory.
        opened: The open environment.
        options: What it was opened with; equal options need no ``replace``.
    """

    def __init__(self, path: str, key: tuple[int, int], opened: Opened, options: object) -> None:
        self.path = path
        self.key: Final = key
        self.pid: Final = os.getpid()
        self.options = options
        self.users = 0
        self.writer: WriterLock | None = None
        self._opened: Opened | None = opened
        self._failure: JournalDiskError | None = None
        self._reading = 0
        self._waiting = 0
        # Readers take the bare lock: a condition around it costs them three times as much.
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)

    def __enter__(self) -> Opened:
        with self._lock:
            opened = self._opened
            if opened is None or self._failure is not None:
                opened = self.opened
            self._reading += 1
            return opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._reading -= 1
            if self._waiting and not self._reading:
                self._idle.notify_all()

    @property
    def opened(self) -> Opened:
        """The open environment, for the writer, which alone may replace it.

        Raises:
            JournalDiskError: The disk failed.
            JournalClosedError: The last ``replace`` failed.
        """
        self.check_disk()
        if self._opened is None:
            raise JournalClosedError(f"the journal {self.path!r} is not open: open it again")
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether there is an environment: no ``fail``, and no ``replace`` that failed, was the last."""
        return self._opened is not None

    def check_disk(self) -> None:
        """Raise if the disk has failed since the environment was opened."""
        if self._failure is not None:
            raise JournalDiskError(*self._failure.args) from self._failure.__cause__

    def replace(self, open_again: Callable[[], Opened], options: object) -> None:
        """Close the environment and open it anew; readers in other threads wait meanwhile."""
        with self._alone():
            self._close()
            self._opened = open_again()
            self._failure = None
            self.options = options

    def fail(self, failure: JournalDiskError) -> None:
        """Close the environment for everybody in this process: what it shows may not be on disk."""
        self._failure = failure
        with self._alone():
            self._close()

    def attach(self) -> None:
        """Count one more user; the caller holds ``registry_lock``."""
        self.users += 1

    def release(self, *, writer: bool) -> None:
        """Count one user less; the last one closes the environment. A writer gives its lock back, too."""
        with registry_lock():
            self.users -= 1
            is_last = not self.users
        with self._alone() if is_last else registry_lock():
            # A store that was opened meanwhile goes on with this environment.
            if is_last and not self.users and shared_environment(self.key) is self:
                del _registry[self.key]
                self._close()
            # The environment first: another process must not begin while this one could still write.
            if writer and self.writer is not None:
                lock, self.writer = self.writer, None
                lock.release()

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Keep everybody else out: nobody reads, opens or forks inside.

        Readers are waited for without ``registry_lock``: such a thread may want to open another journal, or to fork.
        """
        while True:
            with self._idle:
                self._waiting += 1
                while self._reading:
                    self._idle.wait()
                self._waiting -= 1
            with registry_lock(), self._idle:
                if not self._reading:
                    yield
                    return

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.env.close()

    def forget(self) -> None:
        """In a forked child: give up what was inherited without touching what the parent still uses."""
        if self.writer is not None:
            self.writer.forget()
        if self._opened is not None:
            _inherited.append(self._opened)


_registry: dict[tuple[int, int], SharedEnvironment] = {}
_lock = threading.RLock()

#: Environments of the parent; held for ever, because an environment that is let go is closed.
_inherited: list[Opened] = []


def registry_lock() -> AbstractContextManager[bool]:
    """The lock under which environments are opened and closed in this process."""
    return _lock


def shared_environment(key: tuple[int, int]) -> SharedEnvironment | None:
    """Return what this process has open on the directory with this device and inode."""
    return _registry.get(key)


def register(shared: SharedEnvironment) -> None:
    """Make an environment known to later openers; the caller holds ``registry_lock``."""
    _registry[shared.key] = shared


def _before_fork() -> None:
    # No fork in the middle of an open: the child would inherit a lock that the registry does not know yet.
    _lock.acquire()


def _after_fork_in_parent() -> None:
    _lock.release()


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603  # the inherited lock may be in any state
    _lock = threading.RLock()
    for shared in _registry.values():
        with suppress(OSError):
            shared.forget()
    _registry.clear()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
