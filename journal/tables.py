"""The tables beside the log: what each holds, and how its keys are made.

Numbers in keys are big-endian, so that the order of the bytes is the order of the numbers. No key holds a text of a
user: those may be longer than the 511 bytes that LMDB allows, so they go in as a keyed hash, and in full into a value.
"""

from __future__ import annotations

import struct
from enum import Enum
from functools import lru_cache
from hashlib import blake2b


class Table(Enum):
    """One ordered map of a journal."""

    #: (run key, number of the first event) -> events of one run, see ``history_values``.
    HISTORIES = "histories"
    #: run key -> the run as lists show it, see ``stored_runs``.
    RUNS = "runs"
    #: (hash of the workflow id, run key) -> run id.
    IDS = "ids"
    #: run key -> what start-up must know of an open run, and its fold, see ``snapshots``.
    OPEN = "open"
    #: (microseconds, run key) -> nothing: when an open run has a timer or a retry that falls due first.
    DUE = "due"
    #: (hash of the type, microseconds, run key) -> nothing: when a closed run has ended.
    CLOSED = "closed"
    #: hash of workflow id and request id -> which event the request has become, in two generations.
    DEDUPE_0 = "dedupe0"
    DEDUPE_1 = "dedupe1"
    #: Large payloads, see ``blobs``; and a copy of each dictionary, see ``history_values``.
    BLOBS = "blobs"
    #: (run key, address of a blob) -> nothing: which runs refer to which blobs.
    BLOB_RUNS = "blob runs"
    #: (destination shard, sequence) -> a message for a run there, see ``outbox``.
    OUTBOX = "outbox"
    #: Facts about the tables: counts, dictionaries, generations.
    FACTS = "facts"


DEDUPE = (Table.DEDUPE_0, Table.DEDUPE_1)

#: A run key, or a time, as a table's key.
NUMBER = struct.Struct(">Q")
#: Two of them.
PAIR = struct.Struct(">QQ")
#: (run key, number of an event).
EVENT = struct.Struct(">QI")
HASH_SIZE = 16


def run_range(run_key: int) -> tuple[bytes, bytes]:
    """Start and stop of all keys that begin with this run key."""
    return NUMBER.pack(run_key), NUMBER.pack(run_key + 1)


def closed_key(type_hash: bytes, closed_at: int, run_key: int) -> bytes:
    """Key of a run in the table of closed runs; ``type_hash`` is the ``text_hash`` of its type."""
    return type_hash + PAIR.pack(closed_at, run_key)


def text_hash(journal_id: str, *texts: str) -> bytes:
    """What stands for texts of users in a key.

    Keyed with the journal's id, so that nobody can choose ids that meet in one journal after another. Lengths keep
    ("ab", "c") and ("a", "bc") apart.
    """
    digest = _keyed(journal_id).copy()
    for text in texts:
        data = text.encode()
        digest.update(b"%d:%b" % (len(data), data))
    return digest.digest()


@lru_cache(maxsize=16)
def _keyed(journal_id: str) -> blake2b:
    return blake2b(digest_size=HASH_SIZE, key=journal_id.encode("ascii"))
