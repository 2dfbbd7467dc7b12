"""Messages from run to run: in order, once, and there until they are acknowledged."""

import pytest

from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryStore
from everact.journal.outbox import (
    Aside,
    Damaged,
    Message,
    Outbox,
    Post,
    Taken,
    acknowledge,
    aside_message,
    put_aside,
    row_of,
    take,
    taken_of,
    watermark,
    write_messages,
)
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
    outbox.acknowledged(message.run_key for message in first[:2])
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


def test_a_message_is_taken_in_once(store):
    with store.view() as tables:
        assert watermark(tables, 5) == 0
    commit(store, lambda changes: take(changes, 5, [1]))
    commit(store, lambda changes: take(changes, 5, [2, 3]))
    with store.view() as tables:
        assert (watermark(tables, 5), watermark(tables, 6)) == (3, 0)
    seen = []

    def repeat(changes):
        with pytest.raises(ValueError, match="of shard 5: message 2 was taken in before"):
            take(changes, 5, [2])
        seen.append(True)

    commit(store, repeat)
    assert seen


def test_what_is_taken_in_ahead_is_known_until_the_gap_is_closed(store):
    commit(store, lambda changes: take(changes, 5, [1, 3, 4, 7]))
    with store.view() as tables:
        taken = taken_of(tables, 5)
    assert taken == Taken(1, ((3, 4), (7, 7)))
    assert [number for number in range(9) if number in taken] == [0, 1, 3, 4, 7]
    with pytest.raises(ValueError, match="message 4 was taken in before"):
        taken.with_more([4])
    commit(store, lambda changes: take(changes, 5, [2]))
    commit(store, lambda changes: take(changes, 5, [6, 5]))
    with store.view() as tables:
        assert taken_of(tables, 5) == Taken(7)


def test_what_a_shard_takes_from_itself_is_acknowledged_with_it(store):
    outbox = Outbox(store)
    first = Post(0)
    first.sent = [outbox.new(0, 7, body) for body in (b"a", b"b", b"c")]
    commit(store, first)
    second = Post(0)
    second.taken = {0: [1, 3]}
    commit(store, second)
    assert [message.body for message in outbox.pending(0)] == [b"b", b"c"]  # the gap is still there
    third = Post(0)
    third.taken = {0: [2]}
    commit(store, third)
    assert outbox.pending(0) == []
    assert Outbox(store).new(0, 7, b"d").sequence == 4


def test_a_damaged_message_comes_as_that_and_can_be_put_aside(store):
    outbox = Outbox(store)
    send(store, outbox, (0, 7, b"a"), (0, 7, b"b"), (0, 7, b"c"))
    commit(store, lambda changes: changes.put(Table.OUTBOX, [(PAIR.pack(0, 2), b"\0" * 20)]))
    first, damaged, last = outbox.pending(0)
    assert (first.body, last.body) == (b"a", b"c")
    assert isinstance(damaged, Damaged)
    assert (damaged.sequence, damaged.row) == (2, b"\0" * 20)
    assert "message 2 to shard 0: the checksum of a row differs" in str(damaged.error)
    assert Outbox(store).has_sent(7)
    post = Post(0)
    post.taken = {0: [1, 2, 3]}
    post.aside = [Aside(0, 2, damaged.row)]
    commit(store, post)
    with store.view() as tables:
        (aside,) = put_aside(tables)
    assert aside == (0, 2, b"\0" * 20)
    assert aside_message(aside).row == damaged.row
    assert outbox.pending(0) == []


def test_what_was_put_aside_is_gone_once_it_is_taken_in(store):
    outbox = Outbox(store)
    one, two = send(store, outbox, (0, 7, b"a"), (0, 7, b"b"))
    post = Post(0)
    post.taken = {0: [1, 2]}
    post.aside = [Aside(0, m.sequence, row_of(m.run_key, m.body)) for m in (one, two)]
    commit(store, post)
    with store.view() as tables:
        assert [aside_message(aside) for aside in put_aside(tables)] == [one, two]
    assert not Outbox(store).has_sent(7)
    post = Post(0)
    post.resumed = [(0, 1)]
    post.aside = [Aside(0, 1, b"in the same commit")]
    commit(store, post)
    with store.view() as tables:
        assert [aside.sequence for aside in put_aside(tables)] == [2]
        assert taken_of(tables, 0) == Taken(2)
