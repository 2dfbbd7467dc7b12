"""Segments of the log so small that it is moved all the time, a limit so low that many payloads become blobs, and no
run that keeps its code in memory between two turns.
"""

import pytest

from everact.actors.passivation import Passivation
from everact.journal import blob_table, blobs, compaction, run_index, snapshots

limit_of = Passivation.__init__


@pytest.fixture(autouse=True)
def tiny_segments(monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 3)
    monkeypatch.setattr(compaction, "WINDOW_PER_RUN", 0)
    monkeypatch.setattr(compaction, "SAMPLES", 20)
    monkeypatch.setattr(compaction, "CROWD", 6)
    monkeypatch.setattr(run_index, "CROWD", 6)
    monkeypatch.setattr(blobs, "SPILL", 12)
    monkeypatch.setattr(blob_table, "CHUNK", 50)
    monkeypatch.setattr(snapshots, "SPILL", 12)
    monkeypatch.setattr(Passivation, "__init__", lambda it, shard, _limit: limit_of(it, shard, 0))


@pytest.fixture
def keeps_code(monkeypatch):
    """Runs keep their code in memory, as ``max_cached_workflows`` says."""
    monkeypatch.setattr(Passivation, "__init__", limit_of)
