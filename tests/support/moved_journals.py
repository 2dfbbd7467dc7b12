"""Journals whose runs are in the tables, in the log, and in both; and ways to damage tables of a closed one."""

import os
import struct
from contextlib import contextmanager
from types import SimpleNamespace

import lmdb
import msgspec

from everact.journal import compaction
from everact.journal import events as ev
from everact.journal.compaction import Compactor
from everact.journal.fold import RunState
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load
from everact.journal.request_ids import Request

from .journal_model import AtOnce
from .journals import runs_of_histories


class Mover:
    """Appends entries to a store as a shard does: each commit moves some of the log into the tables.

    Attributes:
        now: What the compactor takes for the time, microseconds.
    """

    def __init__(self, store):
        self.store = store
        self.now = 1_000
        loaded = load(store)
        self.index = loaded.runs
        self.states = dict(loaded.states)
        self.compactor = Compactor(store, self.index, loaded.facts, self.states.get, lambda: self.now)
        self.compactor.reads_here = True

    def append(self, entries):
        started = {}
        for entry in entries:
            record = ev.decode_record(entry.body)
            if entry.first_event == 1:
                started[entry.run_key] = record.inputs[0]
                self.states[entry.run_key] = RunState()
            state = self.states[entry.run_key]
            state.apply(record, entry.at)
            for number, event in enumerate(record.inputs, entry.first_event):
                if isinstance(event, ev.WITH_DIGEST) and event.request_id:
                    self.index.requests.reserve(
                        state.started.workflow_id,
                        event.request_id,
                        Request(entry.run_key, number, event.digest),
                    )
        step = self.compactor.plan(len(entries))
        sequence = self.store.position.sequence
        self.store.append(self.store.position, entries, step)
        self.index.add(sequence, entries, started)
        if step is not None:
            self.compactor.committed(step, sequence + bool(entries))
        assert self.compactor.error is None


def with_requests(runs):
    """The same runs; their start has a request id."""
    changed = []
    for first, *others in runs:
        record = ev.decode_record(first.body)
        start = msgspec.structs.replace(record.inputs[0], request_id="q", digest=b"d")
        record = msgspec.structs.replace(record, inputs=(start, *record.inputs[1:]))
        body = ev.encode_record(record)
        changed.append([first._replace(body=body, flags=first.flags | 32), *others])
    return changed


@contextmanager
def small_segments(window=40):
    """Segments so small that the log is moved all the time."""
    names = {
        "WINDOW": window,
        "WINDOW_PER_RUN": 1,
        "SAMPLES": 45,
        "threading": SimpleNamespace(Thread=AtOnce),  # a dictionary comes at the same moment each time
    }
    before = {name: getattr(compaction, name) for name in names}
    vars(compaction).update(names)
    try:
        yield
    finally:
        vars(compaction).update(before)


def move(store, runs=None, window=40):
    """Append runs, interleaved, while the log is moved."""
    with small_segments(window):
        mover = Mover(store)
        waiting = [
            list(entries) for entries in (with_requests(runs_of_histories()) if runs is None else runs)
        ]
        while waiting:
            batch = [entries.pop(0) for entries in waiting[:2]]
            waiting = [entries for entries in [*waiting[2:], *waiting[:2]] if entries]
            mover.append(batch)
    return mover


def many_runs(copies):
    """The committed histories several times, with other ids."""
    found = []
    for copy in range(copies):
        for entries in runs_of_histories():
            record = ev.decode_record(entries[0].body)
            start = record.inputs[0]
            start = msgspec.structs.replace(
                start, workflow_id=f"{start.workflow_id}-{copy}", run_id=f"{start.run_id}-{copy}"
            )
            record = msgspec.structs.replace(record, inputs=(start, *record.inputs[1:]))
            key = len(found) + 1
            first = entries[0]._replace(body=ev.encode_record(record))
            found.append([entry._replace(run_key=key) for entry in (first, *entries[1:])])
    return with_requests(found)


def make_moved_journal(path, runs=None, window=40):
    """A closed journal whose runs are in the tables, in the log, and in both."""
    store = LmdbStore(path, durability="os")
    move(store, runs, window)
    store.close()


@contextmanager
def table_of(path, table):
    """A database of a closed journal as ``(transaction, database)``, to do damage."""
    with lmdb.open(os.fspath(path), max_dbs=32, lib_version=0, map_size=64 << 20) as env:
        database = env.open_db(table.encode())
        with env.begin(write=True, db=database) as txn:
            yield txn, database


def rows_of(path, table):
    """All rows of a table."""
    with table_of(path, table) as (txn, _):
        return list(txn.cursor())


def put(path, table, key, value):
    """Set a row, or take it out."""
    with table_of(path, table) as (txn, _):
        if value is None:
            assert txn.delete(key)
        else:
            txn.put(key, value)


def flip_row(path, table, key):
    """Change a byte in the middle of a row's value."""
    value = bytearray(dict(rows_of(path, table))[key])
    value[len(value) // 2] ^= 0xFF
    put(path, table, key, bytes(value))


def spoil_page(path, table, key, how="zeros"):
    """Damage the leaf page that holds a row; other rows of the table stand on it too.

    Args:
        how: ``zeros``: as a lost write leaves it. ``noise``: random bytes. ``head``: only its header. ``rows``: the
            offsets of its rows.
    """
    with lmdb.open(os.fspath(path), max_dbs=32, lib_version=0, map_size=64 << 20) as env:
        size = env.stat()["psize"]
        copy = path / "copy"
        copy.mkdir()
        env.copy(os.fspath(copy), compact=True)  # no old page is left in it
    (copy / "data.mdb").replace(path / "data.mdb")
    copy.rmdir()
    value = dict(rows_of(path, table))[key]
    data = bytearray((path / "data.mdb").read_bytes())
    (base,) = {
        base
        for base in range(2 * size, len(data), size)
        if struct.unpack_from("<H", data, base + 10)[0] & 2 and key + value[:40] in data[base : base + size]
    }
    part = {"zeros": slice(0, size), "noise": slice(0, size), "head": slice(0, 16), "rows": slice(16, 20)}[
        how
    ]
    length = part.stop - part.start
    noise = bytes(length) if how == "zeros" else b"\xa5\x5a\xff\x81" * (length // 4)
    data[base + part.start : base + part.stop] = noise
    (path / "data.mdb").write_bytes(data)
