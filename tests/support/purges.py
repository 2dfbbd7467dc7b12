"""What must hold of a journal from which runs were purged."""

from everact.journal.facts import read_facts
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load
from everact.journal.stored_runs import decode_run
from everact.journal.tables import NUMBER, PAIR, Table, closed_key, text_hash
from support.crashes import read_journal


def check_tables(store):
    """No row is left of a purged run, but for histories that the facts name; every closed run is listed as one."""
    with store.view() as tables:
        facts = read_facts(tables)
        runs = {NUMBER.unpack(key)[0]: decode_run(row) for key, row in tables.scan(Table.RUNS)}
        closed = {key for key, _ in tables.scan(Table.CLOSED)}
        assert closed == {
            closed_key(text_hash(store.journal_id, run.workflow_type), run.closed_at, key)
            for key, run in runs.items()
            if run.closed_at
        }
        ids = {key for key, _ in tables.scan(Table.IDS)}
        assert ids == {
            text_hash(store.journal_id, run.workflow_id) + NUMBER.pack(key) for key, run in runs.items()
        }
        histories = {PAIR.unpack(key[:8] + b"\0" * 8)[0] for key, _ in tables.scan(Table.HISTORIES)}
        assert histories <= runs.keys() | set(facts.purging), histories - runs.keys()
        assert {NUMBER.unpack(key)[0] for key, _ in tables.scan(Table.OPEN)} == {
            key for key, run in runs.items() if not run.closed_at
        }
        assert not runs.keys() & set(facts.purging)
        assert facts.highest_key >= max(runs, default=0)
    return facts


def check_journal(path):
    """Check a closed journal; returns its runs by key, as ``read_journal`` does, and its facts."""
    runs = read_journal(path)
    store = LmdbStore(path, read_only=True)
    try:
        return runs, check_tables(store)
    finally:
        store.close()


def next_key(path):
    store = LmdbStore(path, read_only=True)
    try:
        return load(store).next_key
    finally:
        store.close()
