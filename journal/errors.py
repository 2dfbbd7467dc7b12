"""The root of all Everact errors, and what the journal raises.

Every error keeps its constructor's arguments in ``args``, so it can be pickled and compared.
"""

from __future__ import annotations

import os


class EveractError(Exception):
    """Root of every error that Everact raises on purpose."""


class PayloadError(EveractError):
    """A value could not be turned into stored bytes, or back.

    Attributes:
        where: What the value was for, e.g. ``"argument 'order' of workflow OrderWorkflow"``.
        path: Where inside the value the trouble is, e.g. ``"$.items[3].price"``.
    """

    def __init__(self, message: str, where: str = "", path: str = "$") -> None:
        super().__init__(message, where, path)
        self.message = message
        self.where = where
        self.path = path

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        at = f" (at {self.path})" if self.path and self.path != "$" else ""
        return f"{place}{self.message}{at}"


class PayloadEncodeError(PayloadError):
    """A value has no stored form; raised at the call that passed it, nothing was written."""


class PayloadDecodeError(PayloadError):
    """Stored bytes do not fit the type that the code asks for; the stored bytes are unharmed."""


class PayloadCodecError(PayloadError):
    """A payload codec could not encode a value, or could not decode what is stored, which is unharmed."""


class PayloadTooLargeError(PayloadError):
    """A value, or all values of one turn, have more bytes than the limit; nothing was written.

    Attributes:
        where: Which value it is, e.g. ``"argument 'order' of workflow OrderWorkflow"``.
        size: Its bytes as it would be stored.
        limit: The most bytes allowed.
        largest: For a whole turn: its largest values.
    """

    def __init__(self, where: str, size: int, limit: int, largest: str = "") -> None:
        super().__init__("is too large", where)
        self.args = (where, size, limit, largest)
        self.size = size
        self.limit = limit
        self.largest = largest

    def __str__(self) -> str:
        option = "record" if self.largest else "payload"
        inside = f" ({self.largest})" if self.largest else ""
        return (
            f"{self.where} has {self.size:,} bytes{inside}, and the limit is {self.limit:,}: pass a reference to data "
            f"that is kept elsewhere, or raise Runtime(payload_limits=PayloadLimits({option}=...))"
        )


class JournalError(EveractError):
    """Root of the errors of the store."""


class NotAJournalError(JournalError):
    """The path holds something that is not an Everact journal; nothing was changed there."""


class JournalVersionError(JournalError):
    """The journal was written in a format that this version cannot read; nothing was changed."""


class JournalAccessError(JournalError):
    """The journal's directory cannot be created, read or written, by this user or just now."""


class JournalFullError(JournalAccessError):
    """There is no room for new work in the journal; nothing was written. Work under way goes on in the reserve.

    Starts, signals and updates are taken again by themselves when there is room.

    Attributes:
        path: The journal's directory.
        what: What is full: ``"quota"``, ``"disk"``, ``"map"`` (the largest size of the data file) or ``"file"``
            (the process's limit on the size of files).
        total: Its size in bytes.
        left: What is left of it in bytes.
        reserve: What of that is kept back for work under way, in bytes.
        needed: Bytes that this call needs, where smaller ones are still taken; else 0.
    """

    def __init__(  # noqa: PLR0917  (args are the constructor's arguments)
        self, path: str, what: str, total: int, left: int, reserve: int, needed: int = 0
    ) -> None:
        super().__init__(path, what, total, left, reserve, needed)
        self.path = path
        self.what = what
        self.total = total
        self.left = left
        self.reserve = reserve
        self.needed = needed

    @property
    def room(self) -> str:
        """What is full, and how much of it is left."""
        return f"{_FULL[self.what][0].format(self.total)} has {self.left:,} bytes left"

    def __str__(self) -> str:
        advice = _FULL[self.what][1]
        full = self.room
        if self.reserve:
            full += f", and {self.reserve:,} are kept for work under way"
        if self.needed:
            return (
                f"the journal {self.path!r} has no room for a message of {self.needed:,} bytes: {full}; nothing was "
                f"written. Smaller ones are taken. {advice}."
            )
        return (
            f"the journal {self.path!r} is full: {full}; nothing was written. {advice}; new work is taken again as "
            f"soon as there is room."
        )


#: What is full, and what to do.
_FULL = {
    "quota": (
        "its quota of {:,} bytes",
        "Purge runs that have ended, or open it with a larger journal_quota",
    ),
    "disk": ("its file system of {:,} bytes", "Free some space there, or purge runs that have ended"),
    "map": (
        "its data file of at most {:,} bytes",
        "Purge runs that have ended, or open it with a larger journal_quota or map_size",
    ),
    "file": (
        "its data file, which this process may not make larger than {:,} bytes,",
        "Raise the limit on the size of files (ulimit -f), or purge runs that have ended",
    ),
}


class JournalLockedError(JournalError):
    """Another process, or another ``Runtime`` of this one, is the writer of this journal.

    Attributes:
        path: The journal's directory.
        pid: Process id of the owner, or None when it could not be read.
    """

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        if self.pid == os.getpid():
            return (
                f"the journal {self.path!r} is already open in this process ({self.pid}), by another Runtime or store: "
                f"use that one, or leave it first"
            )
        owner = f"process {self.pid}" if self.pid else "another process"
        return (
            f"the journal {self.path!r} is in use by {owner}: one process writes a journal at a time. "
            f"Stop that process, or give this one another directory. To use what runs there, connect to it with "
            f"everact.Client.connect('unix:{self.path}')."
        )


class JournalEncryptedError(JournalError):
    """The journal is encrypted, and the codec for that is missing: what comes in would be stored as it is.

    Nothing was changed.

    Attributes:
        path: The journal's directory.
        missing: The encryptions that the journal has been written with and for which there is no codec.
    """

    def __init__(self, path: str, missing: tuple[str, ...]) -> None:
        super().__init__(path, missing)
        self.path = path
        self.missing = missing

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.missing))
        example = "AesGcmCodec(keys, active=...)" if "aes-gcm" in self.missing else "..."
        return (
            f"the journal {self.path!r} is encrypted ({names}), and this Runtime has no payload codec for that: what "
            f"comes in would stand there unencrypted. Pass the codec: Runtime(codecs=[{example}]). To encrypt nothing "
            f"more from here on, pass one that only decrypts: AesGcmCodec(keys, active=None)."
        )


class JournalClosedError(JournalError):
    """The store was closed, or is used in a forked child; open it again in this process."""


class AppendRefusedError(JournalError):
    """The append was stale: another writer has taken over, or the position moved on. Nothing was written.

    Attributes:
        expected: ``(epoch, position)`` that the caller believed in.
        actual: ``(epoch, position)`` that the store holds.
    """

    def __init__(self, expected: tuple[int, int], actual: tuple[int, int]) -> None:
        super().__init__(expected, actual)
        self.expected = expected
        self.actual = actual

    def __str__(self) -> str:
        return (
            f"append refused: the writer expected (epoch, position) {self.expected}, "
            f"the journal is at {self.actual}; nothing was written"
        )


class CommitUnknownError(JournalError):
    """The commit failed and nobody can know whether it is on disk; the state is rebuilt from the journal.

    The caller repeats the call with the same ``request_id``: it is then applied once.
    """


class JournalDiskError(CommitUnknownError):
    """The journal's disk failed to sync, or this cannot be excluded; the journal is shut in this process.

    What was acknowledged is on disk. Repair the disk, start again, and repeat the call with the same ``request_id``.

    Attributes:
        path: The journal's directory.
        reason: What was seen.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the disk of the journal {self.path!r} failed: {self.reason}. What was acknowledged before is on disk; "
            f"whether the last commit is, is unknown, so nothing is read or written here any more. Look for the "
            f"disk's errors in the system's log, mend it, then start this program again and repeat the call with the "
            f"same request_id: it is applied once."
        )


class JournalCorruptError(JournalError):
    """A stored record cannot be read; the message names the record."""


class ImportRefusedError(JournalError):
    """An exported run is damaged, or this journal has it already; raised by imports, nothing was written."""
