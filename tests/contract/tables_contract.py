"""What the tables and the segments of every journal store must do; a subclass says how one is opened."""

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
from everact.journal.store import JournalStore, Location, Position, Segments
from everact.journal.tables import NUMBER, PAIR, Table

from .store_contract import Failure, entry, fail, fill

ROWS = Table.RUNS
#: More rows than a store reads in one piece.
MANY = 1300


def key(number):
    return NUMBER.pack(number)


def rows_of(*numbers):
    return [(key(number), b"value %d" % number) for number in numbers]


def content(store, table=ROWS):
    with store.view() as tables:
        return list(tables.scan(table))


def change(store, work, entries=()):
    return store.append(store.position, list(entries), work)


def put(store, *numbers, table=ROWS):
    return change(store, lambda changes: changes.put(table, rows_of(*numbers)))


def segments(store):
    with store.view() as tables:
        return tables.segments


class TablesContract(ABC):
    @abstractmethod
    def open(self) -> JournalStore:
        """Open the journal of this test for writing; again after ``close``."""

    @abstractmethod
    def take_over(self, store: JournalStore) -> None:
        """Raise the epoch as another writer would, while ``store`` stays open."""

    @pytest.fixture
    def store(self):
        store = self.open()
        yield store
        store.close()

    # --- tables

    def test_a_new_journal_has_empty_tables_and_one_segment(self, store):
        for table in Table:
            assert content(store, table) == []
            assert list(store.rows(table)) == []
        with store.view() as tables:
            assert tables.get(ROWS, b"nothing") is None
            assert tables.segments == Segments(0, 1)

    def test_what_is_put_is_found_again_also_after_opening_again(self, store):
        put(store, 3, 1, 2)
        for _ in range(2):
            with store.view() as tables:
                assert tables.get(ROWS, key(2)) == b"value 2"
                assert type(tables.get(ROWS, key(2))) is bytes
                assert tables.get(ROWS, key(4)) is None
                assert tables.get(ROWS, b"\0") is None
                assert list(tables.scan(ROWS)) == rows_of(1, 2, 3)
                assert list(tables.scan(Table.OPEN)) == []
            store.close()
            store = self.open()
        store.close()

    def test_every_table_is_one_of_its_own(self, store):
        def work(changes):
            for number, table in enumerate(Table):
                changes.put(table, rows_of(number))

        change(store, work)
        change(store, lambda changes: changes.clear(Table.IDS))
        for number, table in enumerate(Table):
            assert content(store, table) == ([] if table is Table.IDS else rows_of(number))

    def test_put_replaces_and_the_last_of_equal_keys_counts(self, store):
        put(store, 1, 2)
        change(
            store, lambda changes: changes.put(ROWS, [(key(1), b"old"), (key(1), b""), (key(3), b"x" * 9000)])
        )
        assert content(store) == [(key(1), b""), *rows_of(2), (key(3), b"x" * 9000)]

    def test_nothing_to_put_or_to_delete_is_harmless(self, store):
        def work(changes):
            changes.put(ROWS, [])
            changes.delete(ROWS, [])
            changes.delete(ROWS, [key(7)])
            changes.clear(ROWS)

        assert change(store, work) == Position(1, 1)
        assert content(store) == []

    def test_delete_takes_out_what_is_there_once_or_twice(self, store):
        put(store, *range(1, 8))
        change(store, lambda changes: changes.delete(ROWS, iter([key(3), key(9), key(3), key(7)])))
        assert content(store) == rows_of(1, 2, 4, 5, 6)

    @pytest.mark.parametrize(
        ("start", "stop", "limit", "left"),
        [
            (2, 5, 9, [1, 5, 6]),
            (2, 5, 2, [1, 4, 5, 6]),
            (0, 9, 9, []),
            (0, 9, 6, []),
            (7, 9, 9, [1, 2, 3, 4, 5, 6]),
            (3, 3, 9, [1, 2, 3, 4, 5, 6]),
            (2, 5, 0, [1, 2, 3, 4, 5, 6]),
        ],
    )
    def test_remove_takes_out_the_first_rows_of_a_range(self, store, start, stop, limit, left):
        put(store, 1, 2, 3, 4, 5, 6)
        removed = []
        change(store, lambda changes: removed.append(changes.remove(ROWS, key(start), key(stop), limit)))
        assert content(store) == rows_of(*left)
        assert removed == [6 - len(left)]

    def test_remove_from_an_empty_table_and_of_what_was_just_put(self, store):
        removed = []

        def work(changes):
            removed.append(changes.remove(ROWS, key(0), key(9), 9))
            changes.put(ROWS, rows_of(1, 2))
            removed.append(changes.remove(ROWS, key(2), key(9), 9))

        change(store, work)
        assert removed == [0, 1]
        assert content(store) == rows_of(1)

    def test_clear_then_put_in_one_transaction(self, store):
        put(store, *range(1, MANY))

        def work(changes):
            changes.clear(ROWS)
            assert list(changes.scan(ROWS)) == []
            changes.put(ROWS, rows_of(5))

        change(store, work)
        assert content(store) == rows_of(5)

    @pytest.mark.parametrize(
        "start", [b"", key(0), key(1), key(4), key(4) + b"\0", key(9), key(10), b"\xff" * 9]
    )
    @pytest.mark.parametrize("stop", [None, b"", key(1), key(4), key(5), key(4) + b"\0", key(9), b"\xff" * 9])
    def test_ranges_hold_their_start_and_not_their_stop(self, store, start, stop):
        put(store, 1, 2, 4, 5, 9)
        right = [row for row in rows_of(1, 2, 4, 5, 9) if row[0] >= start and (stop is None or row[0] < stop)]
        with store.view() as tables:
            assert list(tables.scan(ROWS, start, stop)) == right
            assert list(tables.scan(ROWS, start, stop, reverse=True)) == right[::-1]
        assert list(store.rows(ROWS, start, stop)) == right
        assert list(store.rows(ROWS, start, stop, reverse=True)) == right[::-1]

    @pytest.mark.parametrize("start", [b"", key(0), key(1), key(4), key(6), key(10)])
    @pytest.mark.parametrize("stop", [b"\0", key(1), key(4), key(5), key(9), b"\xff" * 9])
    def test_the_last_row_of_a_range(self, store, start, stop):
        put(store, 1, 2, 4, 5, 9)
        right = [row for row in rows_of(1, 2, 4, 5, 9) if start <= row[0] < stop]

        def work(changes):
            assert changes.last(ROWS, start, stop) == (right[-1] if right else None)
            assert changes.last(Table.OPEN, start, stop) is None
            changes.delete(ROWS, [row[0] for row in right])
            assert changes.last(ROWS, start, stop) is None

        with store.view() as tables:
            assert tables.last(ROWS, start, stop) == (right[-1] if right else None)
            assert tables.last(Table.OPEN, start, stop) is None
        change(store, work)

    def test_keys_are_ordered_as_bytes_whatever_their_length(self, store):
        keys = [b"\0", b"\0\0", b"\0\1", b"\1", PAIR.pack(1, 2), b"a", b"aa", b"b", b"\xff", b"\xff" * 16]
        change(store, lambda changes: changes.put(ROWS, [(each, each) for each in reversed(keys)]))
        assert [found for found, _ in content(store)] == sorted(keys)
        for each in keys:
            with store.view() as tables:
                assert tables.get(ROWS, each) == each

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("value", [b"v", b"v" * 9000], ids=["small", "large"])
    def test_rows_read_in_pieces_are_complete(self, store, value, reverse):
        wanted = [(key(number), value) for number in range(1, MANY)]
        change(store, lambda changes: changes.put(ROWS, wanted))
        assert list(store.rows(ROWS, reverse=reverse)) == (wanted[::-1] if reverse else wanted)

    @pytest.mark.parametrize("reverse", [False, True])
    def test_rows_that_nobody_touches_are_read_once_while_others_write(self, store, reverse):
        """Each step of the reader meets a commit that changes what is before and behind it."""
        kept = [number for number in range(1, MANY) if number % 2]
        put(store, *range(1, MANY))
        reading = store.rows(ROWS, reverse=reverse)
        seen = []
        for step, (found, value) in enumerate(reading):
            seen.append(NUMBER.unpack(found)[0])
            assert value == b"value %d" % seen[-1]
            if step % 100 == 0:
                other = 2 * (step + 1) % MANY
                change(
                    store,
                    lambda changes, other=other: (
                        changes.delete(ROWS, [key(other)]),
                        changes.put(ROWS, rows_of(MANY + 2 * other)),
                    ),
                )
        odd = [number for number in seen if number % 2]
        assert odd == (kept[::-1] if reverse else kept)
        assert len(seen) == len(set(seen))
        assert seen == sorted(seen, reverse=reverse)

    def test_rows_end_when_the_table_is_cleared_meanwhile(self, store):
        put(store, *range(1, MANY))
        reading = store.rows(ROWS)
        next(reading)
        change(store, lambda changes: changes.clear(ROWS))
        rest = [NUMBER.unpack(found)[0] for found, _ in reading]
        assert rest == list(range(2, len(rest) + 2))

    # --- work

    def test_work_and_record_are_one_transaction(self, store):
        position = change(store, lambda changes: changes.put(ROWS, rows_of(1)), [entry(1)])
        assert position == Position(1, 2)
        assert list(store.scan()) == [(1, [entry(1)])]
        assert content(store) == rows_of(1)

    def test_work_alone_writes_no_record(self, store):
        fill(store, 2)
        assert put(store, 1) == Position(1, 3)
        assert store.position == Position(1, 3)
        store.close()
        again = self.open()
        assert again.position == Position(2, 3)
        assert content(again) == rows_of(1)
        again.close()

    def test_work_sees_its_own_changes_and_its_own_record(self, store):
        written = fill(store, 2)
        put(store, 1, 2)

        def work(changes):
            changes.put(ROWS, rows_of(3))
            changes.delete(ROWS, [key(1)])
            assert changes.get(ROWS, key(1)) is None
            assert changes.get(ROWS, key(3)) == b"value 3"
            assert list(changes.scan(ROWS, reverse=True)) == rows_of(2, 3)[::-1]
            assert changes.read([Location(3, 0), Location(1, 0)]) == [entry(9), *written[1]]

        change(store, work, [entry(9)])
        assert content(store) == rows_of(2, 3)

    @pytest.mark.parametrize("entries", [[entry(3)], []], ids=["with a record", "alone"])
    @pytest.mark.parametrize("error", [Failure, KeyboardInterrupt])
    def test_work_that_raises_leaves_nothing(self, store, entries, error):
        written = fill(store, 2)
        put(store, 1, 2)

        def work(changes):
            changes.put(ROWS, rows_of(3))
            changes.delete(ROWS, [key(1)])
            changes.clear(Table.IDS)
            changes.put(Table.OPEN, rows_of(1))
            if entries:
                changes.read([Location(3, 0)])
            changes.seal()
            raise error

        with pytest.raises(CommitUnknownError if error is Failure else KeyboardInterrupt):
            change(store, work, entries)
        self.check_as_before(store, written)
        with pytest.raises(CommitUnknownError, match="reopen the store"):
            put(store, 9)
        assert store.reopen() == Position(2, 3)
        self.check_as_before(store, written)
        fill(store, 1)
        assert store.read([Location(3, 0)]) == [entry(3000, b"turn 0")]

    def check_as_before(self, store, written):
        assert content(store) == rows_of(1, 2)
        assert content(store, Table.OPEN) == []
        assert list(store.scan()) == list(written.items())
        assert segments(store) == Segments(0, 1)
        with pytest.raises(JournalCorruptError, match=r"commit record 3 .* missing"):
            store.read([Location(3, 0)])

    @pytest.mark.parametrize(
        "point", ["journal.commit.before", "journal.commit.written", "journal.commit.after"]
    )
    def test_a_failed_commit_takes_its_work_with_it_or_keeps_it(self, store, point):
        fill(store, 2)
        put(store, 1)
        with armed(point, fail), pytest.raises(CommitUnknownError):
            change(store, lambda changes: (changes.put(ROWS, rows_of(2)), changes.seal()), [entry(3)])
        durable = point.endswith("after")
        for _ in range(2):
            assert content(store) == (rows_of(1, 2) if durable else rows_of(1))
            assert segments(store) == (Segments(1, 4) if durable else Segments(0, 1))
            assert len(list(store.scan())) == 2 + durable
            assert store.reopen().sequence == 3 + durable

    def test_the_work_of_a_stale_writer_is_refused(self, store):
        fill(store, 1)
        self.take_over(store)
        called = []
        for expected in (store.position, Position(2, 2)):
            with pytest.raises(AppendRefusedError):
                store.append(expected, [], called.append)
            with pytest.raises(AppendRefusedError):
                store.append(expected, [entry(2)], called.append)
        assert called == []
        assert store.reopen() == Position(3, 2)
        put(store, 1)
        assert content(store) == rows_of(1)

    def test_work_at_another_position_is_refused(self, store):
        fill(store, 1)
        with pytest.raises(AppendRefusedError):
            store.append(Position(1, 1), [], lambda changes: changes.put(ROWS, rows_of(1)))
        assert content(store) == []
        put(store, 1)

    def test_nothing_to_write_is_an_error_and_harmless(self, store):
        with pytest.raises(ValueError, match="at least one entry"):
            store.append(store.position, [])
        put(store, 1)

    # --- views

    def test_a_view_stays_at_its_moment(self, store):
        written = fill(store, 2)
        put(store, 1, 2)
        with store.view() as before:
            scan = before.scan(ROWS)
            assert next(scan) == rows_of(1)[0]

            def work(changes):
                changes.put(ROWS, [(key(2), b"new"), *rows_of(3)])
                changes.delete(ROWS, [key(1)])
                changes.put(Table.OPEN, rows_of(1))
                changes.seal()

            # LMDB allows a thread one transaction at a time.
            writer = threading.Thread(target=change, args=(store, work, [entry(3)]))
            writer.start()
            writer.join()
            assert list(scan) == rows_of(2)
            assert list(before.scan(ROWS)) == rows_of(1, 2)
            assert before.get(ROWS, key(2)) == b"value 2"
            assert before.get(Table.OPEN, key(1)) is None
            assert before.segments == Segments(0, 1)
            assert before.read([Location(2, 0)]) == written[2]
            with pytest.raises(JournalCorruptError, match=r"commit record 3 .* missing"):
                before.read([Location(3, 0)])
        assert content(store) == [(key(2), b"new"), *rows_of(3)]

    def test_a_view_keeps_the_records_that_are_dropped_meanwhile(self, store):
        written = fill(store, 70)
        change(store, lambda changes: changes.seal())
        with store.view() as before:
            writer = threading.Thread(target=change, args=(store, lambda changes: changes.drop_sealed()))
            writer.start()
            writer.join()
            wanted = [Location(sequence, 0) for sequence in written]
            assert before.read(wanted) == [written[sequence][0] for sequence in written]
        with pytest.raises(JournalCorruptError, match=r"commit record 70 .* missing"):
            store.read([Location(70, 0)])

    def test_views_in_other_threads_see_whole_commits(self, store):
        """Each commit moves a number from one table to another; a view never sees both or none."""
        put(store, 1)
        failures, done = [], threading.Event()

        def reader():
            try:
                while not done.is_set():
                    with store.view() as tables:
                        found = [*tables.scan(ROWS), *tables.scan(Table.OPEN)]
                        assert len(found) == 1, found
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=reader) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(1, 200):
            here, there = (ROWS, Table.OPEN) if number % 2 else (Table.OPEN, ROWS)

            def work(changes, here=here, there=there, number=number):
                changes.delete(here, [key(number)])
                changes.put(there, rows_of(number + 1))

            change(store, work)
        done.set()
        for thread in threads:
            thread.join()
        assert failures == []

    def test_a_closed_store_has_no_tables(self, store):
        put(store, *range(1, MANY))
        reading = store.rows(ROWS)
        next(reading)
        store.close()
        for use in (
            lambda: content(store),
            lambda: list(store.rows(ROWS)),
            lambda: list(reading),
            lambda: store.append(Position(1, 1), [], lambda changes: None),
        ):
            with pytest.raises(JournalClosedError, match="is closed"):
                use()

    # --- segments

    def test_scan_and_read_go_across_both_segments(self, store):
        written = fill(store, 150, 2)
        change(store, lambda changes: changes.seal())
        written |= fill(store, 150, 2)
        assert segments(store) == Segments(1, 151)
        for start in (0, 1, 2, 149, 150, 151, 152, 300, 301):
            assert [sequence for sequence, _ in store.scan(start)] == list(range(max(start, 1), 301))
        assert dict(store.scan()) == written
        wanted = [Location(sequence, n) for sequence in (300, 1, 150, 151, 150) for n in (1, 0)]
        assert store.read(wanted) == [written[location.sequence][location.entry] for location in wanted]

    def test_a_dropped_segment_is_gone_whole(self, store):
        fill(store, 150)
        change(store, lambda changes: changes.seal())
        written = fill(store, 3)
        store.read([Location(70, 0)])
        assert change(store, lambda changes: changes.drop_sealed()) == Position(1, 154)
        for _ in range(2):
            assert segments(store) == Segments(0, 151)
            assert dict(store.scan()) == dict(store.scan(70)) == written
            for sequence in (1, 70, 150):
                with pytest.raises(JournalCorruptError, match=f"commit record {sequence} .* missing"):
                    store.read([Location(sequence, 0)])
            epoch = store.position.epoch
            store.close()
            store = self.open()
            assert store.position == Position(epoch + 1, 154)
        store.close()

    def test_the_position_stays_when_all_records_are_dropped(self, store):
        fill(store, 5)
        change(store, lambda changes: changes.seal())
        assert store.position == Position(1, 6)
        assert change(store, lambda changes: changes.drop_sealed()) == Position(1, 6)
        assert list(store.scan()) == []
        assert store.reopen() == Position(2, 6)
        store.close()
        again = self.open()
        assert again.position == Position(3, 6)
        assert segments(again) == Segments(0, 6)
        written = fill(again, 2)
        assert list(again.scan()) == list(written.items())
        again.close()

    def test_sealing_in_an_append_puts_its_record_before_the_seal(self, store):
        fill(store, 2)
        assert change(store, lambda changes: changes.seal(), [entry(3)]) == Position(1, 4)
        assert segments(store) == Segments(1, 4)
        fill(store, 1)
        change(store, lambda changes: changes.drop_sealed(), [entry(5)])
        assert [sequence for sequence, _ in store.scan()] == [4, 5]

    def test_segments_are_used_in_turn_for_ever(self, store):
        written = {}
        for round_number in range(1, 8):
            written |= fill(store, round_number)
            first = segments(store).current
            change(store, lambda changes: changes.seal())
            written |= fill(store, 2)
            assert dict(store.scan()) == {n: each for n, each in written.items() if n >= first}
            change(store, lambda changes: changes.drop_sealed())
            if round_number % 3 == 0:
                store.reopen()
        assert store.position.sequence == len(written) + 1

    def test_drop_and_seal_in_one_transaction(self, store):
        fill(store, 2)
        change(store, lambda changes: changes.seal())
        written = fill(store, 3)
        change(store, lambda changes: (changes.drop_sealed(), changes.seal()))
        assert segments(store) == Segments(3, 6)
        written |= fill(store, 1)
        assert dict(store.scan()) == written

    def test_a_second_seal_is_refused(self, store):
        written = fill(store, 2)
        change(store, lambda changes: changes.seal())
        with pytest.raises(CommitUnknownError, match="there is a sealed segment already"):
            change(store, lambda changes: changes.seal())
        store.reopen()
        assert dict(store.scan()) == written
        assert segments(store) == Segments(1, 3)

    def test_a_scan_goes_on_behind_what_is_dropped_meanwhile(self, store):
        fill(store, 150)
        change(store, lambda changes: changes.seal())
        fill(store, 100)
        scan = store.scan()
        seen = [next(scan)[0]]
        change(store, lambda changes: changes.drop_sealed())
        seen += [sequence for sequence, _ in scan]
        assert seen == sorted(set(seen))
        assert {1, *range(151, 251)} <= set(seen)

    @pytest.mark.parametrize("sealed", [0, 3])
    def test_a_scan_ends_at_what_was_there_whatever_is_sealed_meanwhile(self, store, sealed):
        fill(store, sealed)
        if sealed:
            change(store, lambda changes: changes.seal())
        fill(store, 3)
        scan = store.scan()
        seen = [next(scan)[0]]
        change(store, lambda changes: (changes.drop_sealed(), changes.seal()))
        fill(store, 5)
        seen += [sequence for sequence, _ in scan]
        assert seen[0] == 1
        assert seen == sorted(set(seen))
        assert set(range(sealed + 1, sealed + 4)) <= set(seen) <= set(range(1, sealed + 4))
