"""Segments of the log so small that the log is moved into the tables all the time."""

import pytest

from everact.journal import compaction, run_index


@pytest.fixture(autouse=True)
def tiny_segments(monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 3)
    monkeypatch.setattr(compaction, "WINDOW_PER_RUN", 0)
    monkeypatch.setattr(compaction, "SAMPLES", 20)
    monkeypatch.setattr(compaction, "CROWD", 6)
    monkeypatch.setattr(run_index, "CROWD", 6)
