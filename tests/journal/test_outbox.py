"""Messages from run to run: in order, once, and there until they are acknowledged."""

import pytest

from everact.journal.errors import JournalCorruptError
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryStore
from everact.journal.outbox import Message, Outbox, acknowledge, set_watermark, watermark, write_messages
from everact.journal.tables import PAIR, Table


@pytest.fixture(params=["memory", "lmdb"])
def store(request, tmp_journal):
    store = MemoryStore() if request.param == "memory" else LmdbStore(tmp_journal, durability="os")
    yield store
    store.close()


def commit(store, work):
    store.append(store.position, [], work)


def send(store, outbox, *messages):
    numbered = [outbox.new(*message) for message in messages]
    commit(store, lambda changes: write_messages(changes, numbered))
    return numbered


def test_each_destination_has_a_sequence_of_its_own(store):
    outbox = Outbox(store)
    send(store, outbox, (1, 7, b"a"), (2, 7, b"b"), (1, 8, b"c"))
    send(store, outbox, (1, 7, b"d"))
    assert outbox.pending(1) == [Message(1, 1, 7, b"a"), Message(1, 2, 8, b"c"), Message(1, 3, 7, b"d")]
    assert outbox.pending(2) == [Message(2, 1, 7, b"b")]
    assert outbox.pending(1, after=1, limit=1) == [Message(1, 2, 8, b"c")]
    assert outbox.destinations() == [1, 2]


def test_what_is_acknowledged_is_gone_and_its_numbers_are_never_used_again(store):
    outbox = Outbox(store)
    first = send(store, outbox, (1, 7, b"a"), (1, 7, b"b"), (3, 9, b"x"))
    assert outbox.has_sent(7)
    commit(store, lambda changes: acknowledge(changes, 1, 2))
    outbox.acknowledged(first[:2])
    assert not outbox.has_sent(7)
    assert outbox.has_sent(9)
    assert (outbox.pending(1), outbox.destinations()) == ([], [3])
    again = Outbox(store)
    assert again.has_sent(9)
    assert not again.has_sent(7)
    assert again.new(1, 7, b"c").sequence == 3
    assert again.new(3, 7, b"y").sequence == 2


def test_numbers_of_a_commit_that_failed_are_given_again(store):
    outbox = Outbox(store)
    send(store, outbox, (1, 7, b"a"))
    lost = outbox.new(1, 7, b"lost")
    assert lost.sequence == 2
    assert Outbox(store).new(1, 7, b"b").sequence == 2


def test_the_watermark_takes_each_message_once_and_leaves_none_out(store):
    with store.view() as tables:
        assert watermark(tables, 5) == 0
    commit(store, lambda changes: set_watermark(changes, 5, 1))
    commit(store, lambda changes: set_watermark(changes, 5, 2))
    with store.view() as tables:
        assert (watermark(tables, 5), watermark(tables, 6)) == (2, 0)
        seen = []

        def repeat(changes):
            for wrong in (2, 4):
                with pytest.raises(ValueError, match=f"message {wrong} of shard 5 does not follow 2"):
                    set_watermark(changes, 5, wrong)
            seen.append(True)

    commit(store, repeat)
    assert seen


def test_a_damaged_message_is_named(store):
    outbox = Outbox(store)
    send(store, outbox, (1, 7, b"a"), (1, 7, b"b"))
    commit(store, lambda changes: changes.put(Table.OUTBOX, [(PAIR.pack(1, 2), b"\0" * 20)]))
    with pytest.raises(JournalCorruptError, match="message 2 to shard 1: the checksum of a row differs"):
        outbox.pending(1)
