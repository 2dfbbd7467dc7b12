"""Random workflows, messages, time, failed commits, restarts and evictions against asyncio itself, under hash
seeds.

``EVERACT_MODEL_EXAMPLES`` says how many under each; ``make model ARGS="--examples 100000"`` runs for as long
as you like.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = os.environ.get("EVERACT_MODEL_EXAMPLES", "100")
ROOT = Path(__file__).parents[2]
SEEDS = [0, 1, 4242]


def rounds(hash_seed, *args):
    command = [sys.executable, "-m", "support.workflow_rounds", *args]
    env = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
    }
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_workflows_do_what_the_same_code_does_on_a_plain_loop_whatever_comes_between(tmp_path, number):
    kept = str(tmp_path / "histories.json")
    said = rounds(SEEDS[number], "--examples", EXAMPLES, "--seed", str(number), "--keep", kept)
    assert said == f"{EXAMPLES} examples agree with the model\n"
    # What one process has written another one replays, under another hash seed.
    said = rounds(SEEDS[number - 1], "--replay", kept)
    assert said.endswith("histories replayed\n")
    assert int(said.split()[0]) > 0
