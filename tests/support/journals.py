"""Journals with runs in them, made of the committed histories; and ways to damage a closed one."""

import os
from contextlib import contextmanager

import lmdb
import msgspec

from everact.journal import events as ev
from everact.journal.fold import RunState
from everact.journal.lmdb_format import LOGS
from everact.journal.lmdb_store import LmdbStore
from everact.journal.run_check import has_request
from everact.journal.run_status import status_flags
from everact.journal.store import CLOSES_RUN, HAS_REQUEST, STARTS_RUN, Entry
from everact.journal.tables import NUMBER

from .histories import FOLDER, read

HISTORIES = sorted(FOLDER.glob("*.json"))


def entries_of(records, key, *, run_id=None):
    """The entries of a run, with the flags that the runtime gives them."""
    state = RunState()
    entries = []
    for at, record in records:
        first, before = state.last_event + 1, state.status
        if first == 1 and run_id is not None:
            start = msgspec.structs.replace(record.inputs[0], run_id=run_id, workflow_id=f"w-{run_id}")
            record = msgspec.structs.replace(record, inputs=(start, *record.inputs[1:]))
        state.apply(record, at)
        flags = STARTS_RUN if first == 1 else 0
        if has_request(record):
            flags |= HAS_REQUEST
        if state.outcome is not None:
            flags |= CLOSES_RUN
        if state.status != before:
            flags |= status_flags(state.status)
        entries.append(Entry(key, first, flags, at, ev.encode_record(record)))
    return entries


def runs_of_histories(*names):
    """Every committed history, or these, as the entries of a run."""
    paths = [FOLDER / f"{name}.json" for name in names] or HISTORIES
    return [entries_of(read(path)[1], key, run_id=f"run-{path.stem}") for key, path in enumerate(paths, 1)]


def fill(store, runs=None):
    """Append runs entry by entry, interleaved, two runs a commit where there are two."""
    waiting = [list(entries) for entries in (runs_of_histories() if runs is None else runs)]
    while waiting:
        batch = [entries.pop(0) for entries in waiting[:2]]
        waiting = [entries for entries in [*waiting[2:], *waiting[:2]] if entries]
        store.append(store.position, batch)


def make_journal(path, runs=None):
    """A closed journal of these runs; by default one of each committed history."""
    store = LmdbStore(path, durability="os")
    fill(store, runs)
    store.close()


@contextmanager
def opened(path):
    """A closed journal, opened for reading."""
    store = LmdbStore(path, read_only=True)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def log_of(path):
    """The log of a closed journal as ``(transaction, database)``, to do damage."""
    with lmdb.open(os.fspath(path), max_dbs=16, lib_version=0, map_size=64 << 20) as env:
        log = env.open_db(LOGS[0])
        with env.begin(write=True) as txn:
            yield txn, log


def flip(path, *sequences):
    """Change a byte in the middle of commit records."""
    with log_of(path) as (txn, log):
        for sequence in sequences:
            data = bytearray(txn.get(NUMBER.pack(sequence), db=log))
            data[len(data) // 2] ^= 0xFF
            txn.put(NUMBER.pack(sequence), bytes(data), db=log)


def cut(path, sequence):
    """Leave the first half of a commit record."""
    with log_of(path) as (txn, log):
        data = txn.get(NUMBER.pack(sequence), db=log)
        txn.put(NUMBER.pack(sequence), data[: len(data) // 2], db=log)


def remove(path, *sequences):
    """Take commit records out of the log."""
    with log_of(path) as (txn, log):
        for sequence in sequences:
            assert txn.delete(NUMBER.pack(sequence), db=log)
