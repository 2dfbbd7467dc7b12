"""K08: a journal on a disk that fills up, or becomes read-only, or cuts writes; a real file system for each test."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.crashes import load_program

PROGRAM = Path(__file__).with_name("disk_program.py")
SIZE = "8m"
MOUNT = f'mount -t tmpfs -o size={SIZE} none "$0" && exec "$@"'


def in_namespace(path, *command):
    """Run a command where ``path`` is a file system of ``SIZE``, seen by nobody else."""
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, path, *command],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.fixture
def small_disk(tmp_path):
    if shutil.which("unshare") is None:
        pytest.skip("this machine has no unshare to make a mount namespace with")
    probe = in_namespace(tmp_path, "true")
    if probe.returncode != 0:
        pytest.skip(f"this user may not make a mount namespace: {probe.stderr.strip()}")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("scenario", load_program(PROGRAM).SCENARIOS)
def test_a_journal_outlives_trouble_with_its_disk(scenario, small_disk):
    ended = in_namespace(small_disk, sys.executable, "-W", "error", PROGRAM, scenario, small_disk)
    assert ended.returncode == 0, f"exit code {ended.returncode}:\n{ended.stdout}{ended.stderr[-4000:]}"
    assert ended.stdout.endswith("ok\n")
