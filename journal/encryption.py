"""What a journal remembers of encryption, so that no program without the codec writes plain values into it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .codecs import PayloadCodec
from .disk_trouble import full_error
from .errors import CommitUnknownError, JournalCorruptError, JournalDiskError, JournalEncryptedError
from .row_checksum import sealed, unsealed
from .store import Changes, JournalStore, Tables
from .tables import Table

_KEY = b"encryption"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[str]).decode


def remembered(tables: Tables) -> frozenset[str]:
    """The encryptions that the journal has been written with, each a ``PayloadCodec.encryption``.

    Raises:
        JournalCorruptError: The row is damaged.
    """
    row = tables.get(Table.FACTS, _KEY)
    if row is None:
        return frozenset()
    try:
        return frozenset(_decode(unsealed(row)))
    except (JournalCorruptError, msgspec.MsgspecError) as error:
        raise JournalCorruptError(f"the row about encryption cannot be read: {error}") from error


def settle_encryption(store: JournalStore, codecs: Sequence[PayloadCodec]) -> None:
    """Refuse to go on without an encryption that the journal has been written with; note the ones that are new.

    The note has a commit of its own, before anything is written with them; a journal has it once.

    Raises:
        JournalEncryptedError: A codec is missing.
        JournalCorruptError: What the journal remembers is damaged.
        JournalFullError: There is no room for the note.
        CommitUnknownError: It could not be written.
    """
    here = {codec.encryption for codec in codecs if codec.encryption}
    with store.view() as tables:
        known = remembered(tables)
    missing = known - here
    if missing:
        raise JournalEncryptedError(store.path, tuple(sorted(missing)))
    if here - known:
        row = _KEY, sealed(_encode(sorted(known | here)))

        def note(changes: Changes) -> None:
            changes.put(Table.FACTS, [row])

        try:
            store.append(store.position, [], note)
        except JournalDiskError:
            raise
        except CommitUnknownError as error:
            raise (full_error(store.path, error.__cause__) or error) from error
