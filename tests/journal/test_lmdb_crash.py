"""SIGKILL at each fault point of a commit: what was acknowledged is there, and nothing else but the last."""

import signal

import pytest

from everact.journal.lmdb_store import LmdbStore
from everact.journal.store import Entry, Position

from .lmdb_processes import Script

WRITER = """
    store = LmdbStore(path, durability=os.environ["DURABILITY"])
    position = store.position
    say(position.sequence)
    while True:
        number = position.sequence
        position = store.append(position, [entry(number), entry(number + 1_000_000)])
        say(number)
    """


def written(sequence):
    return [
        Entry(number, number, 0, number, b"turn %d" % number) for number in (sequence, sequence + 1_000_000)
    ]


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize(
    ("point", "unacknowledged"),
    [("journal.commit.before", 0), ("journal.commit.written", 0), ("journal.commit.after", 1)],
)
def test_a_killed_writer_keeps_every_acknowledged_record(tmp_journal, point, unacknowledged, durability):
    expected = 0
    for incarnation, passes in enumerate((1, 4), 1):
        fault = {"EVERACT_FAULT": f"{point}:{passes}", "DURABILITY": durability}
        with Script(WRITER, tmp_journal, **fault) as writer:
            first, *acknowledged = map(int, writer.process.stdout.read().split())
            assert writer.process.wait() == -signal.SIGKILL
        assert first == expected + 1
        assert acknowledged == list(range(first, first + passes - 1))
        expected += passes - 1 + unacknowledged
        store = LmdbStore(tmp_journal, read_only=True)
        assert store.position == Position(incarnation, expected + 1)
        assert list(store.scan()) == [(number, written(number)) for number in range(1, expected + 1)]
        store.close()
    store = LmdbStore(tmp_journal, durability="os")
    assert store.append(Position(3, expected + 1), written(9)) == Position(3, expected + 2)
    store.close()
