"""SIGKILL while messages to a damaged run are put aside, and while they are taken in once it is mended: each once."""

from pathlib import Path

import pytest
from support.crashes import load_program, one_life
from support.hosting import hosted, settled, until

from everact.journal.lmdb_store import LmdbStore
from everact.journal.outbox import Outbox, put_aside, taken_of
from everact.journal.tables import NUMBER, Table

PROGRAM = Path(__file__).with_name("aside_program.py")
LIMIT = 60
POINTS = (
    "courier.take.before",
    "outbox.apply.before",
    "outbox.written",
    "journal.commit.written",
    "journal.commit.after",
    "courier.applied",
)


def flip_rows(journal):
    """Damage the first run; called again, mend it."""
    store = LmdbStore(journal)
    try:

        def change(changes):
            for table in (Table.RUNS, Table.OPEN, Table.HISTORIES):
                key, value = changes.last(table, NUMBER.pack(1), NUMBER.pack(2))
                changes.put(table, [(key, value[:-1] + bytes([value[-1] ^ 0xFF]))])

        store.append(store.position, [], change)
    finally:
        store.close()


def messages(journal):
    """How many wait in the outbox, and how many are put aside."""
    store = LmdbStore(journal, read_only=True)
    try:
        with store.view() as tables:
            taken = taken_of(tables, 0)
            return sum(m.sequence not in taken for m in Outbox(store).pending(0)), len(put_aside(tables))
    finally:
        store.close()


def live(journal, phase, faults):
    """Lives of a phase until one comes to its end; returns what that has said, and how many were killed."""
    kills = 0
    for fault in [*faults, ""]:
        is_over, lines, _ = one_life(PROGRAM, journal, phase, fault=fault, limit=LIMIT)
        if is_over:
            return lines[0], kills
        kills += 1
    raise AssertionError("never came to its end")


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
async def test_each_message_that_was_put_aside_arrives_once_and_in_order(tmp_journal, point):
    program = load_program(PROGRAM)
    count = program.SENDERS * program.WORDS
    async with hosted(tmp_journal, program.Ear, program.Mouth) as runtime:
        await runtime.spawn(program.Ear, count, id="ear")
        shard = runtime._shard
        await settled(runtime)
        shard.compactor.hurry()
        shard.housekeeping.wake()
        await until(lambda: not any(map(len, shard.index.rows.values())))
    flip_rows(tmp_journal)
    faults = [f"{point}:{number}" for number in (1, 2, 3)]
    said, kills = live(tmp_journal, "send", faults)
    assert said == ["aside", count]
    assert kills
    assert messages(tmp_journal) == (0, count)
    flip_rows(tmp_journal)
    said, more = live(tmp_journal, "mended", faults)
    assert more
    kind, words = said
    assert (kind, len(words), len(set(words))) == ("heard", count, count)
    for number in range(program.SENDERS):
        mine = [word for word in words if word.startswith(f"{number} ")]
        assert mine == [f"{number} {word}" for word in range(program.WORDS)]
    assert messages(tmp_journal) == (0, 0)
