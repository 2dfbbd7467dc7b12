"""Segments of the log so small that it is moved all the time, and a limit so low that many payloads become blobs."""

import pytest

from everact.journal import blob_table, blobs, compaction, run_index, snapshots


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
