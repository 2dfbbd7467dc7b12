import pytest

from everact.journal.memory_store import MemoryJournal, MemoryStore

from .store_contract import StoreContract, fill
from .tables_contract import TablesContract


class TestMemoryStore(StoreContract, TablesContract):
    @pytest.fixture(autouse=True)
    def _journal(self):
        self.journal = MemoryJournal()

    def open(self):
        return MemoryStore(self.journal)

    def take_over(self, store):
        self.open()

    def damage(self, store, sequence):
        record = self.journal.state.records[sequence]
        middle = len(record) // 2
        damaged = record[:middle] + bytes([record[middle] ^ 1]) + record[middle + 1 :]
        self.journal.state.records[sequence] = damaged


def test_without_a_backing_every_store_has_its_own_journal():
    one, other = MemoryStore(), MemoryStore()
    fill(one, 1)
    assert list(other.scan()) == []
    assert one.journal_id != other.journal_id


def test_the_newer_of_two_stores_on_one_journal_is_the_writer():
    journal = MemoryJournal()
    older = MemoryStore(journal)
    fill(older, 1)
    newer = MemoryStore(journal)
    fill(newer, 1)
    older.close()
    assert len(list(newer.scan())) == 2
