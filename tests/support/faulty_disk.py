"""A disk that fails when told to: a library that is preloaded into a test's process, compiled where it runs."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")


def compiled(folder):
    """The library; skips the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler to make a disk fail")
    library = folder / "faulty_disk.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", SOURCE, "-o", library, "-ldl"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return library
