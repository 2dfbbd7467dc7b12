"""Is this directory ours? Looked at without changing anything; and how a new journal begins."""

from __future__ import annotations

import mmap
import os
import struct
import uuid
from enum import Enum
from pathlib import Path

import lmdb

from .disk_trouble import advice, full_error, is_read_only, saying
from .errors import (
    JournalAccessError,
    JournalCorruptError,
    JournalError,
    JournalVersionError,
    NotAJournalError,
)
from .fault_points import fault_point
from .lmdb_damage import damaged, holds_journal, lost, unreadable, what_is_wrong
from .lmdb_lock import LOCK_FILE, Notes, Opened, read_notes
from .lmdb_pages import PageFile
from .tables import NUMBER, Table

#: Version of the layout of the databases; raised when an older Everact could misread a journal.
FORMAT_VERSION = 2
#: The oldest version that is brought to this one when a writer opens the journal.
OLDEST_FORMAT = 1

DATA_FILE = "data.mdb"
LOCK_TABLE = "lock.mdb"

META = b"meta"
LOGS = (b"log0", b"log1")
_DATABASES = (META, *LOGS, *(table.value.encode() for table in Table))
#: Those that start-up reads in whole.
_READ_AT_START = (META, *LOGS, *(table.value.encode() for table in (Table.FACTS, Table.OPEN, Table.DUE)))
#: Room for databases in an environment; some is left for later.
MAX_DATABASES = 32

# Keys of the database ``meta``.
MARK_KEY, MARK = b"everact", b"journal"
FORMAT_KEY = b"format"
ID_KEY = b"journal id"
EPOCH_KEY = b"writer epoch"
SEGMENT_KEY = b"segment"

#: Value of the segment key: which log is appended to, first sequence of the sealed one (0 when there is none), first
#: sequence of this one.
SEGMENTS = struct.Struct(">BQQ")

#: Near the start of an LMDB file: magic, version of the data format. Where exactly differs by version.
_MAGIC = struct.pack("=I", 0xBEEFC0DE)
_HEAD_BYTES = 64
_LMDB_VERSION = 1
_UNWRITTEN_PAGES = 16
_FRESH_BYTES = 2 * 65536

_FOR_WRITERS = "give an empty or a new directory for the journal"
_FOR_READERS = "give the directory that a Runtime was given"


def _advice(*, writer: bool) -> str:
    return _FOR_WRITERS if writer else _FOR_READERS


def check_path(path: str) -> str:
    """Return the path of a journal, if it can be one.

    Raises:
        ValueError: It has a character in it that no path can have.
    """
    if "\0" in path:
        raise ValueError(f"the path of a journal cannot hold the character NUL: {path!r}")
    return path


class Found(Enum):
    """What an acceptable directory holds."""

    NOTHING = "nothing yet, or what a process left that was killed while it made the journal"
    JOURNAL = "a journal of this format"


def refuse_other_file(path: str, *, writer: bool = True) -> None:
    """Refuse a path that is there but is not a directory.

    Args:
        path: Where the journal is to be.
        writer: Whether one may be made there; for the advice.

    Raises:
        NotAJournalError: It is a file, or a link to nothing.
        JournalAccessError: The system does not say what is there: no right to look, a name that is too long.
    """
    place = Path(path)
    with saying(f"the journal {path!r} cannot be found"):
        is_other = not place.is_dir() and (place.exists() or place.is_symlink())
    if is_other:
        raise NotAJournalError(
            f"{path!r} is not a directory, so it is not a journal: {_advice(writer=writer)}"
        )


def make_directory(path: str) -> None:
    """Create the journal's directory, and its parents, if it is missing.

    Raises:
        NotAJournalError: The path, or a parent, is something else than a directory.
        JournalAccessError: It cannot be created.
    """
    directory = Path(path)
    refuse_other_file(path)
    if directory.is_dir():
        return
    try:
        missing = [place for place in (directory, *directory.parents) if not place.is_dir()]
        directory.mkdir(0o770, parents=True, exist_ok=True)
        # A new directory is durable once the directory above it is synced.
        for made in missing:
            sync_directory(made.parent)
    except (NotADirectoryError, FileExistsError) as error:
        # The error names what could not be made, not what was in the way.
        way = next((str(place) for place in (directory, *directory.parents) if os.path.lexists(place)), path)
        raise NotAJournalError(
            f"the journal {path!r} cannot be created, {way!r} is not a directory: {_FOR_WRITERS}"
        ) from error
    except OSError as error:
        raise JournalAccessError(
            f"the directory of the journal {path!r} cannot be created ({error.strerror}): "
            f"create it for this user, or choose another one"
        ) from error


def sync_directory(path: str | Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def inspect(path: str, *, locked: bool) -> Found:
    """Decide whether a directory is a journal or can become one; changes and creates nothing.

    Args:
        path: An existing directory.
        locked: The caller holds the lock, so nobody writes. Otherwise, where a writer has left its name in
            the lock file, the look takes part in LMDB's reader table: pages must not change under it.

    Raises:
        NotAJournalError: It holds something else.
        JournalVersionError: It is a journal of another format version.
        JournalAccessError: It cannot be read.
        JournalCorruptError: Its data file is gone, was cut, or LMDB finds it damaged.
    """
    try:
        names = {entry.name for entry in Path(path).iterdir()}
        # A process that makes a journal begins with the lock file: without it, nothing here is ours.
        begun = LOCK_FILE in names
        notes = read_notes(path) if begun else Notes("", "")
        if DATA_FILE not in names:
            if notes.journal_id:
                raise lost(path, "is missing")
            strange = names - {LOCK_FILE, LOCK_TABLE if begun else "", "lost+found"}
            if strange:
                raise NotAJournalError(
                    f"the directory {path!r} is not empty and holds no journal "
                    f"(found {min(strange)!r}): {_advice(writer=locked)}"
                )
            return Found.NOTHING
        data = Path(path, DATA_FILE)
        if begun and is_blank(data):
            if notes.journal_id:
                raise lost(path, "is empty" if not data.stat().st_size else "holds nothing but zeros")
            return Found.NOTHING
        _check_head(path, data, is_ours=bool(notes.journal_id), writer=locked)
        live = not locked and bool(notes.owner)
    except OSError as error:
        raise JournalAccessError(
            f"the journal {path!r} cannot be read by this user ({error.strerror}): "
            f"change the rights of {error.filename!r}"
        ) from error
    found = _look_inside(path, begun=begun, lock=live and LOCK_TABLE in names, writer=locked)
    if found is Found.NOTHING and notes.journal_id:
        raise lost(path, "has nothing in it")
    return found


def is_blank(data: Path) -> bool:
    """Is the data file one that LMDB had not begun to fill, as a kill or a power cut leaves it?"""
    return data.stat().st_size <= _FRESH_BYTES and not data.read_bytes().strip(b"\0")


def _check_head(path: str, data: Path, *, is_ours: bool, writer: bool) -> None:
    with data.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    _, magic, rest = head.partition(_MAGIC)
    (version,) = struct.unpack_from("=I", rest) if magic and len(rest) >= 4 else (None,)
    if version == _LMDB_VERSION:
        return
    if is_ours or holds_journal(data):
        raise unreadable(path, what_is_wrong(data))
    if version is None:
        advice = _advice(writer=writer)
        raise NotAJournalError(f"{str(data)!r} is not an LMDB file, so {path!r} is not a journal: {advice}")
    raise NotAJournalError(
        f"{str(data)!r} is an LMDB file of data format {version}, journals have {_LMDB_VERSION}: "
        f"{_advice(writer=writer)}"
    )


def _look_inside(path: str, *, begun: bool, lock: bool, writer: bool) -> Found:
    try:
        env = lmdb.open(path, readonly=True, create=False, lock=lock, max_dbs=MAX_DATABASES, lib_version=0)
    except lmdb.Error as error:
        raise open_error(path, error) from error
    try:
        _check_length(path, env, pad=writer, live=lock)
        with env.begin() as txn:
            if not txn.stat()["entries"] and begun:
                return Found.NOTHING
            try:
                meta = env.open_db(META, txn=txn, create=False)
                marked = txn.get(MARK_KEY, db=meta) == MARK
                version = txn.get(FORMAT_KEY, db=meta)
            except (lmdb.NotFoundError, lmdb.IncompatibleError):
                marked, version = False, None
            if not marked:
                raise NotAJournalError(
                    f"{path!r} holds an LMDB environment that is not an Everact journal: {_advice(writer=writer)}"
                )
        if writer and version == b"%d" % FORMAT_VERSION:
            _check_heads(path, env.stat()["psize"])
    except lmdb.Error as error:
        raise unreadable(path, str(error)) from error
    finally:
        env.close()
    _check_version(path, bytes(version or b"").decode("ascii", "replace"), writer=writer)
    return Found.JOURNAL


def _check_length(path: str, env: lmdb.Environment, *, pad: bool, live: bool) -> None:
    """Refuse a data file that was cut: to touch a page beyond its end would kill the process (SIGBUS).

    The last pages may be free ones that were never written, so a file that lacks a few of them may be whole. It is
    padded (``pad``) by whoever is going to write: if they held something after all, the zeros are found out as damage.
    A reader follows all pages without LMDB first, unless a writer is there (``live``), which has padded it.
    """
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    size = Path(path, DATA_FILE).stat().st_size
    if pad and needed - _UNWRITTEN_PAGES * env.stat()["psize"] <= size < needed:
        os.truncate(Path(path, DATA_FILE), needed)
        return
    is_cut = size < needed - _UNWRITTEN_PAGES * env.stat()["psize"]
    if is_cut or (size < needed and not live and not _is_whole(path, env.stat()["psize"])):
        raise unreadable(
            path, f"it was cut to {size:,} bytes, its pages need {needed:,}, as after an unfinished copy"
        )


def _is_whole(path: str, page_size: int) -> bool:
    """Whether everything that the pages of a data file lead to is inside of it."""
    pages = PageFile(memoryview(Path(path, DATA_FILE).read_bytes()), page_size)
    try:
        return not any(leaf.damage for name in _DATABASES for leaf in pages.leaves(name))
    except JournalCorruptError:
        return False


def _check_heads(path: str, page_size: int) -> None:
    """Refuse a data file with a damaged page in what start-up reads in whole.

    LMDB trusts the pages that it goes along: one of zeros, as a lost write leaves it, would end the process.
    """
    with (
        Path(path, DATA_FILE).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        pages = PageFile(view, page_size)
        damage = next(filter(None, map(pages.damaged_head, _READ_AT_START)), "")
    if damage:
        raise JournalCorruptError(
            f"the data file of the journal {path!r} is damaged ({damage}): `everact journal verify` names all of it, "
            f"`everact journal export` takes out what is whole; restore a backup"
        )


def _check_version(path: str, version: str, *, writer: bool) -> None:
    oldest = OLDEST_FORMAT if writer else FORMAT_VERSION
    if version.isdigit() and oldest <= int(version) <= FORMAT_VERSION:
        return
    if version.isdigit() and int(version) > FORMAT_VERSION:
        advice = "use the version of Everact that wrote it, or a newer one"
    elif version.isdigit() and int(version) >= OLDEST_FORMAT:
        advice = "open it once with a Runtime or `everact journal compact`, which brings it to this version"
    else:
        advice = "export it with the version of Everact that wrote it, and import it into a new directory"
    raise JournalVersionError(
        f"the journal {path!r} has format version {version or 'unknown'}, "
        f"this version of Everact reads {FORMAT_VERSION}: {advice}"
    )


def open_error(path: str, error: Exception) -> JournalError:
    """Return the error to raise when LMDB did not open a directory that looked right."""
    text = str(error)
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError):
        return damaged(path, text)
    wrong = "" if isinstance(error, OSError) else what_is_wrong(Path(path, DATA_FILE))
    if wrong or isinstance(error, lmdb.InvalidError):
        return unreadable(path, wrong or text)
    full = full_error(path, error)
    if full is not None:
        return full
    if is_read_only(path):
        reason = f"{text}: its file system is mounted read-only, mount it for reading and writing"
    elif "already open in this process" in text:
        reason = (
            "this process has it open outside of Everact, or was forked from one that has it open: "
            "start the process with the spawn or forkserver method, or open the journal only after the fork"
        )
    elif isinstance(error, lmdb.MemoryError) or "Cannot allocate" in text:
        reason = (
            "the address space of this process is limited (ulimit -v): "
            "raise the limit, or pass a smaller map_size"
        )
    else:
        reason = f"{text}: {advice(error) or 'check the rights of the files and the free space'}"
    return JournalAccessError(f"the journal {path!r} cannot be opened: {reason}")


def open_databases(env: lmdb.Environment, *, create: bool) -> Opened:
    """Return an environment with its databases.

    With ``create`` a new journal is begun if there is none, and one of an older format is brought to this one.
    Everything a journal needs is made in one transaction: after a kill there is all of it or nothing.
    """
    if not create:
        # A handle opened inside a read transaction ends with it.
        return _opened(env, [env.open_db(name, create=False) for name in _DATABASES])
    with env.begin(write=True) as txn:
        opened = _opened(env, [env.open_db(name, txn=txn) for name in _DATABASES])
        if txn.get(MARK_KEY, db=opened.meta) is None:
            for key, value in (
                (MARK_KEY, MARK),
                (FORMAT_KEY, b"%d" % FORMAT_VERSION),
                (ID_KEY, uuid.uuid4().hex.encode()),
                (EPOCH_KEY, NUMBER.pack(0)),
                (SEGMENT_KEY, SEGMENTS.pack(0, 0, 1)),
            ):
                txn.put(key, value, db=opened.meta)
            fault_point("journal.open.created")
        elif txn.get(FORMAT_KEY, db=opened.meta) == b"1":
            # Format 1 has one log, and no tables: these are made empty, and filled when the log is moved into them.
            txn.put(SEGMENT_KEY, SEGMENTS.pack(0, 0, 1), db=opened.meta)
            txn.put(FORMAT_KEY, b"%d" % FORMAT_VERSION, db=opened.meta)
            fault_point("journal.open.migrated")
    return opened


def _opened(env: lmdb.Environment, databases: list[lmdb._Database]) -> Opened:
    meta, log0, log1, *tables = databases
    return Opened(env, meta, (log0, log1), dict(zip(Table, tables, strict=True)))
