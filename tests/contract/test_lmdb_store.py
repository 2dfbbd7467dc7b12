import pytest

from everact.journal.lmdb_format import EPOCH_KEY
from everact.journal.lmdb_store import LmdbStore
from everact.journal.tables import NUMBER

from .store_contract import StoreContract
from .tables_contract import TablesContract


class TestLmdbStore(StoreContract, TablesContract):
    @pytest.fixture(autouse=True)
    def _path(self, tmp_journal):
        self.path = tmp_journal

    # The contract says nothing of power cuts; without syncs the suite is fast on every disk.
    def open(self):
        return LmdbStore(self.path, durability="os")

    def take_over(self, store):
        env, meta = store._shared.opened.env, store._shared.opened.meta
        with env.begin(write=True) as txn:
            (epoch,) = NUMBER.unpack(txn.get(EPOCH_KEY, db=meta))
            txn.put(EPOCH_KEY, NUMBER.pack(epoch + 1), db=meta)

    def damage(self, store, sequence):
        env, log = store._shared.opened.env, store._shared.opened.logs[0]
        with env.begin(write=True) as txn:
            record = bytearray(txn.get(NUMBER.pack(sequence), db=log))
            record[len(record) // 2] ^= 1
            txn.put(NUMBER.pack(sequence), bytes(record), db=log)


class TestDurableLmdbStore(TestLmdbStore):
    def open(self):
        return LmdbStore(self.path)
