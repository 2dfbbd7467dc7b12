"""What is said of a journal whose data file is damaged or gone: that it is one, what is wrong, and what to do."""

from __future__ import annotations

import mmap
from pathlib import Path

from .errors import JournalCorruptError
from .lmdb_pages import head_trouble

#: The first row of every journal, key and value, as it stands in a page.
_FIRST_ROW = b"everactjournal"
_HEAD = 2 << 16

#: What to do about damage past which the commands can read.
ADVICE = (
    "keep a copy of the directory; `everact journal verify` names what is damaged; then restore a backup, or take out "
    "what is whole with `everact journal export`"
)


def damaged(path: str, reason: str) -> JournalCorruptError:
    """The error for damage past which the commands can read."""
    return JournalCorruptError(f"the data file of the journal {path!r} is damaged ({reason}): {ADVICE}")


def unreadable(path: str, reason: str) -> JournalCorruptError:
    """The error for damage to what leads to everything else."""
    return JournalCorruptError(
        f"the data file of the journal {path!r} is damaged ({reason}), and no command can read past that: keep a copy "
        f"of the directory, then restore it from a backup"
    )


def lost(path: str, what: str) -> JournalCorruptError:
    """The error for a directory in which a journal was made, and which has no data any more."""
    return JournalCorruptError(
        f"the journal {path!r} has lost its data: data.mdb {what}. Restore it from a backup; to begin anew, give a "
        f"new directory"
    )


def what_is_wrong(data: Path) -> str:
    """What is wrong with the head of a data file, on which LMDB relies; empty when nothing is."""
    with data.open("rb") as file:
        return head_trouble(file.read(_HEAD), data.stat().st_size)


def holds_journal(data: Path) -> bool:
    """Whether anything in a file that is no LMDB file any more was once a journal's."""
    if not data.stat().st_size:
        return False
    with data.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped.find(_FIRST_ROW) >= 0
