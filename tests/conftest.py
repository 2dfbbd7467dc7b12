"""What every test has: a path for a journal, hypothesis profiles, what processes that tests start inherit."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# pytest turns faulthandler on for itself; processes that tests start get it from here.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")
# Hundreds of processes are started: without bytecode on the disk, each would compile the whole package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shared machine has no steady pace: no deadlines. In CI the same examples every time.
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=50,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


@pytest.fixture
def tmp_journal(tmp_path: Path) -> Path:
    """Where a test may create a journal; nothing is there yet."""
    return tmp_path / "journal"
