"""Copy a journal while it is in use."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lmdb

from .disk_trouble import said, saying
from .errors import JournalAccessError, JournalCorruptError
from .lmdb_format import DATA_FILE, sync_directory
from .lmdb_salvage import damaged_pages
from .lmdb_store import LmdbStore
from .salvage import Progress
from .verify import Report, verify

#: A data file that grows by less while it is copied is not worth a word.
GROWN = 64 << 20


@dataclass(frozen=True)
class Backup:
    """What a backup has made.

    Attributes:
        path: The copy's directory.
        bytes: Size of its data file.
        source_bytes: Size of the data file that was copied, free pages included.
        grown_bytes: By how much that has grown while it was copied.
        seconds: How long the copy was a reader of the journal.
        report: What ``verify`` says of the copy.
    """

    path: str
    bytes: int
    source_bytes: int
    grown_bytes: int
    seconds: float
    report: Report

    @property
    def warning(self) -> str:
        """What to say of a copy that took long beside a busy writer; empty when there is nothing to say."""
        if self.grown_bytes < max(GROWN, self.bytes // 10):
            return ""
        return (
            f"the data file grew by {self.grown_bytes:,} bytes in the {self.seconds:.0f} s in which it was copied, as "
            f"what is freed cannot be used again meanwhile: it is used from now on. Copy at a quieter time or to a "
            f"faster disk; compacting gives the room back"
        )


def backup(
    source: str | os.PathLike[str], destination: str | os.PathLike[str], progress: Progress | None = None
) -> Backup:
    """Copy a journal as it is at one moment, also while another process writes it, and verify the copy.

    LMDB's compacting copy takes one read transaction: the writer goes on, but cannot use freed pages again until the
    copy is done, so its data file may grow; that is measured. (Its plain copy would hold commits up.) The checks before
    and after take none that is long. The copy is made beside the destination and renamed once it
    is on disk, so there is never half a copy under its name. It keeps the journal's id and the rights of its file.

    Args:
        source: The journal's directory.
        destination: A directory that is missing or empty.
        progress: As for ``verify``.

    Raises:
        JournalAccessError: The destination is taken, or cannot be written; there is nothing new under its name.
        NotAJournalError: The source is no journal.
        JournalCorruptError: The source's data file was cut or is damaged.
        JournalVersionError: The source has another format version.
    """
    target = Path(destination).absolute()
    if target.exists() or target.is_symlink():
        # A link is refused even to an empty directory: the rename would replace it.
        if target.is_symlink() or not target.is_dir():
            raise JournalAccessError(f"the backup {str(target)!r} is not a directory: give a new one")
        if any(target.iterdir()):
            raise JournalAccessError(f"the directory {str(target)!r} is not empty: give the backup a new one")
    if Path(source).resolve() in target.resolve().parents:
        raise JournalAccessError(f"the backup {str(target)!r} is inside the journal: give another place")
    store = LmdbStore(source, read_only=True)
    try:
        # LMDB copies by following its pages, and a damaged one could lead it anywhere.
        damage = damaged_pages(store)
        if damage:
            raise JournalCorruptError(
                f"the data file of the journal {store.path!r} has damaged pages and is not copied "
                f"({damage[0].place}: {damage[0].reason}): `everact journal verify` names them, "
                f"`everact journal export` takes out what is whole"
            )
        data = Path(store.path, DATA_FILE)
        with _workplace(target) as place:
            size_before, begun = data.stat().st_size, time.monotonic()
            try:
                _copy(store, place)
            except lmdb.Error as error:
                what = f"the journal {store.path!r} cannot be copied to {str(target)!r}"
                raise JournalAccessError(said(what, error)) from error
            seconds = time.monotonic() - begun
            source_bytes = data.stat().st_size
            made = place / DATA_FILE
            made.chmod(data.stat().st_mode & 0o777)
            with made.open("rb") as file:
                os.fsync(file.fileno())
            copy = LmdbStore(place, read_only=True)
            try:
                report = verify(copy, progress)
            finally:
                copy.close()
            # The table of readers that the check has left; nobody else knows this directory yet.
            for other in set(place.iterdir()) - {made}:
                other.unlink()
            sync_directory(place)
            size = made.stat().st_size
            place.rename(target)
            sync_directory(target.parent)
    except OSError as error:
        raise JournalAccessError(said(f"the backup {str(target)!r} cannot be written", error)) from error
    finally:
        store.close()
    grown = max(0, source_bytes - size_before)
    return Backup(str(target), size, source_bytes, grown, seconds, report)


def _copy(store: LmdbStore, place: Path) -> None:
    with store._shared as opened:
        opened.env.copy(str(place), compact=True)


@contextmanager
def _workplace(target: Path) -> Generator[Path]:
    """A new directory on the destination's file system; removed unless it was renamed."""
    with saying(f"the directory {str(target.parent)!r} for the backup cannot be made"):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:  # as a file
            raise NotADirectoryError(errno.ENOTDIR, "") from error
    place = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
