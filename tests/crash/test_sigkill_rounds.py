"""Fifty lives that end by SIGKILL at random; ``make soak`` goes through a thousand."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_nothing_is_lost_or_repeated_in_thirty_kills():
    seed = 1 if os.environ.get("CI") else random.randrange(10**6)  # as hypothesis does it
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "support.sigkill_rounds", "--kills", "30", "--seed", str(seed)],
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.fspath, (TESTS.parent, TESTS)))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.startswith(f"seed {seed}\n")
    assert done.stdout.splitlines()[-1].startswith("30 kills in ")
