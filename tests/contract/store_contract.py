"""What every journal store must do; a subclass says how one is opened."""

import os
import pickle
import threading
from abc import ABC, abstractmethod

import pytest

from everact.journal.errors import (
    AppendRefusedError,
    CommitUnknownError,
    JournalClosedError,
    JournalCorruptError,
)
from everact.journal.fault_points import armed
from everact.journal.store import CLOSES_RUN, STARTS_RUN, Entry, JournalStore, Location, Position

NOW = 1_700_000_000_000_000


def entry(number, body=b"turn"):
    return Entry(number, number, STARTS_RUN, NOW + number, body)


def fill(store, records, size=1):
    """Append records of ``size`` entries; returns all entries by sequence."""
    written = {}
    for _ in range(records):
        position = store.position
        entries = [entry(position.sequence * 1000 + n, b"turn %d" % n) for n in range(size)]
        store.append(position, entries)
        written[position.sequence] = entries
    return written


class Failure(Exception):
    pass


def fail():
    raise Failure("the disk is on fire")


class StoreContract(ABC):
    @abstractmethod
    def open(self) -> JournalStore:
        """Open the journal of this test for writing; again after ``close``."""

    @abstractmethod
    def take_over(self, store: JournalStore) -> None:
        """Raise the epoch as another writer would, while ``store`` stays open."""

    @abstractmethod
    def damage(self, store: JournalStore, sequence: int) -> None:
        """Change a byte in the middle of a commit record."""

    @pytest.fixture
    def store(self):
        store = self.open()
        yield store
        store.close()

    def test_a_new_journal_begins_at_epoch_1_and_sequence_1(self, store):
        assert store.position == Position(1, 1)
        assert list(store.scan()) == []
        assert store.read([]) == []

    def test_the_journal_id_is_32_hex_digits_and_stays(self, store):
        first = store.journal_id
        assert len(first) == 32
        int(first, 16)
        store.close()
        again = self.open()
        assert again.journal_id == first
        again.close()

    def test_append_returns_the_next_position(self, store):
        assert store.append(Position(1, 1), [entry(1)]) == Position(1, 2)
        assert store.position == Position(1, 2)
        assert store.append(Position(1, 2), [entry(2)]) == Position(1, 3)

    def test_space_is_used_by_what_is_appended(self, store):
        before = store.space()
        assert before.used <= before.size <= before.limit
        store.append(store.position, [entry(1, os.urandom(100_000))])
        after = store.space()
        assert 100_000 <= after.used - before.used < 120_000
        assert after.size >= after.used
        assert after.room <= before.room

    def test_space_of_a_closed_store_is_not_looked_at(self, store):
        store.close()
        with pytest.raises(JournalClosedError):
            store.space()

    def test_entries_come_back_as_they_were(self, store):
        entries = [
            Entry(1, 1, STARTS_RUN, 0, b""),
            Entry(2**64 - 1, 2**32 - 1, 255, 2**63 - 1, bytes(range(256))),
            Entry(7, 3, STARTS_RUN | CLOSES_RUN, -(2**63), b"\0"),
        ]
        store.append(store.position, entries)
        assert list(store.scan()) == [(1, entries)]
        assert all(type(found.body) is bytes for found in store.read([Location(1, 0), Location(1, 1)]))

    @pytest.mark.parametrize("body", [b"a" * 20_000_000, os.urandom(3_000_000)], ids=["regular", "random"])
    def test_large_entries(self, store, body):
        store.append(store.position, [entry(1), entry(2, body), entry(3)])
        assert store.read([Location(1, 1)])[0].body == body
        assert store.read([Location(1, 2)]) == [entry(3)]

    def test_1000_entries_in_one_record(self, store):
        written = fill(store, 1, 1000)
        assert list(store.scan()) == [(1, written[1])]
        assert store.read(Location(1, n) for n in range(1000)) == written[1]

    @pytest.mark.parametrize(
        ("wrong", "text"),
        [
            ([], "at least one entry"),
            ([entry(1), Entry(-1, 1, 0, 0, b"")], "run_key of entry 1 is -1"),
            ([Entry(2**64, 1, 0, 0, b"")], "run_key of entry 0"),
            ([Entry(1, 2**32, 0, 0, b"")], "first_event of entry 0"),
            ([Entry(1, 1, 256, 0, b"")], "flags of entry 0 is 256"),
            ([Entry(1, 1, 0, 2**63, b"")], "at of entry 0"),
        ],
    )
    def test_what_cannot_be_stored_is_refused_and_harmless(self, store, wrong, text):
        with pytest.raises(ValueError, match=text):
            store.append(store.position, wrong)
        assert store.append(store.position, [entry(1)]) == Position(1, 2)

    @pytest.mark.parametrize("expected", [Position(1, 2), Position(1, 4), Position(0, 3), Position(2, 3)])
    def test_an_append_at_another_position_is_refused(self, store, expected):
        written = fill(store, 2)
        with pytest.raises(AppendRefusedError) as caught:
            store.append(expected, [entry(9)])
        assert caught.value.expected == expected
        assert caught.value.actual == (1, 3)
        assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args
        assert list(store.scan()) == list(written.items())
        assert store.append(Position(1, 3), [entry(3)]) == Position(1, 4)

    def test_a_stale_writer_is_refused_whatever_it_expects(self, store):
        fill(store, 2)
        self.take_over(store)
        for expected in (store.position, Position(2, 3)):
            with pytest.raises(AppendRefusedError) as caught:
                store.append(expected, [entry(3)])
            assert caught.value.actual == (2, 3)
        assert store.position == Position(1, 3)
        assert store.reopen() == Position(3, 3)
        assert store.append(Position(3, 3), [entry(3)]) == Position(3, 4)

    def test_opening_again_keeps_all_and_raises_the_epoch(self, store):
        written = fill(store, 5, 3)
        store.close()
        again = self.open()
        assert again.position == Position(2, 6)
        assert list(again.scan()) == list(written.items())
        with pytest.raises(AppendRefusedError):
            again.append(Position(1, 6), [entry(6)])
        again.close()

    @pytest.mark.parametrize("start", [0, 1, 2, 149, 150, 151, 1000])
    def test_scan_begins_at_start(self, store, start):
        written = fill(store, 150)
        assert list(store.scan(start)) == [(n, written[n]) for n in range(max(start, 1), 151)]

    def test_a_scan_ends_at_what_was_durable_when_it_began(self, store):
        fill(store, 2)
        seen = []
        for sequence, _ in store.scan():
            seen.append(sequence)
            fill(store, 1)
        assert seen == [1, 2]

    def test_read_keeps_the_order_and_repeats(self, store):
        written = fill(store, 200, 3)
        wanted = [Location(sequence, n) for sequence in (200, 1, 77, 1, 200, 64) for n in (2, 0, 0)]
        assert store.read(wanted) == [written[location.sequence][location.entry] for location in wanted]
        assert store.read(iter(wanted)) == store.read(wanted)

    @pytest.mark.parametrize(
        "location", [Location(3, 0), Location(0, 0), Location(-1, 0), Location(2**63, 0)]
    )
    def test_a_missing_record_is_named(self, store, location):
        fill(store, 2)
        with pytest.raises(JournalCorruptError, match=f"commit record {location.sequence} .* missing"):
            store.read([Location(1, 0), location])

    @pytest.mark.parametrize("number", [2, -1])
    def test_a_missing_entry_is_named(self, store, number):
        fill(store, 2, 2)
        with pytest.raises(JournalCorruptError, match=f"commit record 2 .* none with index {number}"):
            store.read([Location(2, number)])

    @pytest.mark.parametrize("size", [1, 100], ids=["plain", "compressed"])
    def test_a_damaged_record_is_named(self, store, size):
        written = fill(store, 3, size)
        self.damage(store, 2)
        scan = store.scan()
        assert next(scan) == (1, written[1])
        with pytest.raises(JournalCorruptError, match="commit record 2 of the journal .* cannot be read: "):
            next(scan)
        with pytest.raises(JournalCorruptError, match="commit record 2 of"):
            store.read([Location(2, 0)])
        assert store.read([Location(3, 0)]) == written[3][:1]

    def test_close_twice_and_use_after_close(self, store):
        fill(store, 70)
        scan = store.scan()
        next(scan)
        store.close()
        store.close()
        uses = (
            lambda: store.append(Position(1, 71), [entry(1)]),
            lambda: store.position,
            lambda: store.reopen(),
            lambda: store.read([Location(1, 0)]),
            lambda: store.read([]),
            lambda: list(store.scan()),
            lambda: list(scan),
        )
        for use in uses:
            with pytest.raises(JournalClosedError, match="is closed"):
                use()

    @pytest.mark.parametrize(
        "point", ["journal.commit.before", "journal.commit.written", "journal.commit.after"]
    )
    def test_a_failed_commit_stops_appends_until_reopen(self, store, point):
        written = fill(store, 2)
        with armed(point, fail), pytest.raises(CommitUnknownError, match="record 3 .*on fire") as caught:
            store.append(Position(1, 3), [entry(3)])
        assert isinstance(caught.value.__cause__, Failure)
        for expected in (Position(1, 3), Position(1, 4)):
            with pytest.raises(CommitUnknownError, match="reopen the store") as later:
                store.append(expected, [entry(4)])
            assert isinstance(later.value.__cause__, Failure)
        # Reading goes on: it shows what is durable, which may include the record in question.
        durable = dict(store.scan())
        assert {n: durable[n] for n in written} == written
        position = store.reopen()
        assert position == Position(2, len(durable) + 1)
        assert len(durable) == (3 if point.endswith("after") else 2)
        store.append(position, [entry(5)])
        assert list(store.scan())[-1] == (position.sequence, [entry(5)])

    def test_an_interrupt_in_a_commit_stops_appends_too(self, store):
        def interrupt():
            raise KeyboardInterrupt

        with armed("journal.commit.written", interrupt), pytest.raises(KeyboardInterrupt):
            store.append(store.position, [entry(1)])
        with pytest.raises(CommitUnknownError):
            store.append(store.position, [entry(1)])
        assert store.append(store.reopen(), [entry(1)]) == Position(2, 2)

    def test_readers_in_other_threads_see_a_growing_prefix(self, store):
        records, failures = 300, []
        started = threading.Barrier(4)
        done = threading.Event()

        def reader():
            try:
                started.wait()
                last = 0
                while True:
                    ending = done.is_set()
                    sequences = [sequence for sequence, _ in store.scan(max(last, 1))]
                    if sequences:
                        assert sequences == list(range(max(last, 1), sequences[-1] + 1))
                        last = sequences[-1]
                        assert store.read([Location(last, 1)])[0].run_key == last * 1000 + 1
                    if ending:
                        assert last == records
                        return
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=reader) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        fill(store, records, 2)
        done.set()
        for thread in threads:
            thread.join()
        assert failures == []

    def test_append_from_another_thread(self, store):
        thread = threading.Thread(target=fill, args=(store, 3))
        thread.start()
        thread.join()
        assert fill(store, 1).keys() == {4}
        assert len(list(store.scan())) == 4
