"""Large payloads: once, whole, with their runs, and away with the last of these."""

import os

import pytest

from everact.journal import blob_table, blobs
from everact.journal import events as ev
from everact.journal.blob_table import Blob, read_blob, release_blobs, stream_blob, write_blobs
from everact.journal.blobs import REFERENCE, Spiller, check_blob, restore, whole_entry
from everact.journal.coded_fields import fields_of
from everact.journal.errors import JournalCorruptError
from everact.journal.failures import Failure
from everact.journal.fold import RunState
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryStore
from everact.journal.payloads import Payload
from everact.journal.snapshots import decode_state, draft_open, encode_open, finish_open
from everact.journal.store import HAS_BLOBS, Entry
from everact.journal.tables import Table

SMALL = Payload("json", b'"small"')
TEXT = Payload("json", b'"%b"' % (b"tea " * 100_000))
NOISE = Payload("raw", os.urandom(700_000))


@pytest.fixture(params=["memory", "lmdb"])
def store(request, tmp_journal):
    store = MemoryStore() if request.param == "memory" else LmdbStore(tmp_journal, durability="os")
    yield store
    store.close()


def commit(store, entries, spilled=()):
    store.append(store.position, entries, lambda changes: write_blobs(changes, spilled))


def rows(store, table):
    return list(store.rows(table))


def turn(*payloads):
    return ev.Turn((ev.SignalReceived("post", payloads),), (ev.ActivityScheduled(1, "print", payloads),))


def test_small_payloads_stay_where_they_are():
    record = turn(SMALL)
    spiller = Spiller("0" * 32)
    assert spiller.spill(record) == (record, [])
    entries = [Entry(1, 1, 0, 5, ev.encode_record(record))]
    assert spiller.spill_entries(entries) == (entries, [])


def test_a_large_payload_leaves_a_reference_and_comes_back(store):
    spiller = Spiller(store.journal_id)
    record = turn(SMALL, TEXT, NOISE)
    whole = Entry(1, 1, 3, 5, ev.encode_record(record))
    (entry,), spilled = spiller.spill_entries([whole])
    assert entry.flags == 3 | HAS_BLOBS
    assert len(entry.body) < 300
    stored = ev.decode_record(entry.body)
    assert [payload.encoding for payload in stored.inputs[0].args] == ["json", REFERENCE, REFERENCE]
    commit(store, [entry], spilled)
    with store.view() as tables:
        assert restore(stored, tables) == record
        assert whole_entry(entry, tables) == whole
        for blob in {blob.address: blob for _, blob in spilled}.values():
            assert read_blob(tables, blob.address) == blob.payload
            assert check_blob(tables, blob.address, spiller) == 1
            assert b"".join(stream_blob(store, blob.address)) == blob.payload.data
    payloads = [payload for event in ev.events_of(stored) for _, payload in fields_of(event)]
    referred = [payload.data for payload in payloads if payload.encoding == REFERENCE]
    assert referred == [blob.address for _, blob in spilled]


def test_the_details_of_failures_are_payloads_too(store):
    inner = Failure(type="Inner", message="no", details=(TEXT,))
    record = ev.Turn((ev.ActivityFailed(1, 1, Failure(type="Outer", cause=inner, details=(SMALL,))),))
    spiller = Spiller(store.journal_id)
    stored, spilled = spiller.spill(record)
    assert [blob.payload for blob in spilled] == [TEXT]
    commit(store, [], [(1, blob) for blob in spilled])
    with store.view() as tables:
        assert restore(stored, tables) == record


def test_equal_payloads_are_kept_once_in_chunks_and_compressed_where_that_helps(store):
    spiller = Spiller(store.journal_id)
    entries = [Entry(key, 1, 0, 5, ev.encode_record(turn(TEXT, NOISE))) for key in (1, 2)]
    stored, spilled = spiller.spill_entries(entries)
    assert len(spilled) == 8
    commit(store, stored, spilled)
    kept = rows(store, Table.BLOBS)
    assert len(rows(store, Table.BLOB_RUNS)) == 4
    assert sum(len(value) for _key, value in kept) < len(NOISE.data) + 2_000
    assert max(len(value) for _key, value in kept) == blob_table.CHUNK
    with store.view() as tables:
        assert [check_blob(tables, blob.address, spiller) for _, blob in spilled[:2]] == [2, 2]
    commit(store, [], spilled)  # again, as after a commit whose outcome was unknown
    assert rows(store, Table.BLOBS) == kept


def test_the_last_run_takes_its_blobs_with_it(store):
    spiller = Spiller(store.journal_id)
    shared, own = Blob(spiller.address(TEXT), TEXT), Blob(spiller.address(NOISE), NOISE)
    commit(store, [], [(1, shared), (1, own), (2, shared)])
    store.append(store.position, [], lambda changes: release_blobs(changes, 1))
    with store.view() as tables:
        assert read_blob(tables, shared.address) == TEXT
        with pytest.raises(
            JournalCorruptError, match=f"payload {own.address.hex()} cannot be read: it is missing"
        ):
            read_blob(tables, own.address)
    went = []
    store.append(store.position, [], lambda changes: went.append(release_blobs(changes, 2)))
    assert (went, rows(store, Table.BLOBS), rows(store, Table.BLOB_RUNS)) == ([1], [], [])


def test_references_are_let_go_in_pieces(store):
    spiller = Spiller(store.journal_id)
    many = [Payload("raw", os.urandom(blobs.SPILL + 1)) for _ in range(5)]
    commit(store, [], [(1, Blob(spiller.address(payload), payload)) for payload in many])
    went = []
    while not went or went[-1] == 2:
        store.append(store.position, [], lambda changes: went.append(release_blobs(changes, 1, 2)))
    assert went == [2, 2, 1]
    assert rows(store, Table.BLOBS) == []


def test_the_snapshot_of_a_run_refers_to_its_blobs(store):
    spiller = Spiller(store.journal_id)
    state = RunState()
    start = ev.WorkflowStarted("w", "r", "T", (TEXT,))
    record = ev.Turn((start,), (ev.ActivityScheduled(1, "print", (TEXT, SMALL)),))
    state.apply(record, 5)
    state.apply(ev.Received((ev.SignalReceived("post", (NOISE,)),)), 6)
    waiting = ev.AttemptFailed(1, 1, Failure(type="E", details=(NOISE,)), 99)
    state.apply(ev.Turn((waiting,)), 7)
    for number, kept in enumerate((record, ev.Received((ev.SignalReceived("post", (NOISE,)),)))):
        commit(store, [], [(1, blob) for blob in spiller.spill(kept)[1]])
        assert number < 2
    row, wake = encode_open(state, spiller)
    assert len(row) < 1_000
    assert wake == 99
    with store.view() as tables:
        again = decode_state(row, tables)
    assert again.activities[1].scheduled == state.activities[1].scheduled
    assert again.activities[1].last_failure == state.activities[1].last_failure
    assert again.unread == state.unread
    assert again.started.args == ()
    assert decode_state(row).activities[1].scheduled.args[0].encoding == REFERENCE


def test_a_draft_of_a_snapshot_is_made_without_a_look_into_large_payloads(store, monkeypatch):
    def refused(_self, _payload):
        raise AssertionError("a payload was hashed")

    state = RunState()
    state.apply(ev.Turn((ev.WorkflowStarted("w", "r", "T"),), (ev.ActivityScheduled(1, "a", (NOISE,)),)), 5)
    with monkeypatch.context() as patch:
        patch.setattr(Spiller, "address", refused)
        draft, _wake = draft_open(state)
    expected = encode_open(state, Spiller(store.journal_id))[0]
    state.apply(ev.Turn((ev.ActivityCompleted(1, 1, TEXT),)), 6)  # the draft is of before
    row = finish_open(draft, Spiller(store.journal_id))
    assert row == expected
    assert decode_state(row).activities[1].scheduled.args[0].encoding == REFERENCE


@pytest.mark.parametrize("kind", ["header", "chunk", "missing", "short"])
def test_a_damaged_blob_is_named(store, kind):
    spiller = Spiller(store.journal_id)
    blob = Blob(spiller.address(TEXT), TEXT)
    commit(store, [], [(1, blob)])
    (header, first), (chunk, second) = rows(store, Table.BLOBS)[:2]

    def damage(changes):
        match kind:
            case "header":
                changes.put(Table.BLOBS, [(header, first[:-1] + bytes([first[-1] ^ 1]))])
            case "chunk":
                changes.put(Table.BLOBS, [(chunk, second[:-9] + bytes([second[-9] ^ 1]) + second[-8:])])
            case "missing":
                changes.delete(Table.BLOBS, [chunk])
            case "short":
                changes.put(Table.BLOBS, [(chunk, second[:-20])])

    store.append(store.position, [], damage)
    with store.view() as tables:
        with pytest.raises(
            JournalCorruptError, match=f"the large payload {blob.address.hex()} cannot be read: "
        ):
            check_blob(tables, blob.address, spiller)
    with pytest.raises(JournalCorruptError, match=f"the large payload {blob.address.hex()} cannot be read: "):
        list(stream_blob(store, blob.address))


def test_a_blob_with_a_damaged_header_is_written_again_with_the_next_run_that_has_it(store, caplog):
    spiller = Spiller(store.journal_id)
    blob, other = Blob(spiller.address(TEXT), TEXT), Blob(spiller.address(NOISE), NOISE)
    commit(store, [], [(1, blob), (2, blob), (2, other)])
    whole = rows(store, Table.BLOBS)
    (header,) = [row for row in whole if row[0] == blob.address]

    def damage(changes):
        changes.put(Table.BLOBS, [(blob.address, header[1][:-1] + bytes([header[1][-1] ^ 1]))])
        changes.put(Table.BLOBS, [(blob.address + b"\0\0\1\0", b"of no use")])

    store.append(store.position, [], damage)
    commit(store, [], [(3, blob)])
    with store.view() as tables:
        assert read_blob(tables, blob.address) == TEXT
        assert check_blob(tables, blob.address, spiller) == 3
        assert check_blob(tables, other.address, spiller) == 1
    assert len(rows(store, Table.BLOBS)) == len(whole)
    text = (
        f"written again: the large payload {blob.address.hex()} cannot be read: the checksum of a row differs"
    )
    assert text in caplog.text


def test_addresses_of_one_journal_say_nothing_about_another():
    assert Spiller("0" * 32).address(TEXT) != Spiller("1" * 32).address(TEXT)
    assert Spiller("0" * 32).address(Payload("raw", TEXT.data)) != Spiller("0" * 32).address(TEXT)
