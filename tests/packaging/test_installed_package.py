"""The package as pip installs it: its metadata, what ships with it, and what importing it costs."""

import importlib.metadata
import importlib.resources
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.smoke

#: What only parts of Everact need; `from everact import ...` must not pay for it.
HEAVY = ("aiohttp", "attr", "pydantic", "rich", "thespian", "typer", "uvloop")


def modules_after(statement: str, cwd: Path) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after ``statement``."""
    code = f"import sys\n{statement}\nimport json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_version_is_the_one_in_the_metadata() -> None:
    import everact
    from everact import _version

    assert _version.__version__ == importlib.metadata.version("everact")
    if not hasattr(everact, "__version__"):
        pytest.skip("the front door does not export __version__ yet")
    assert everact.__version__ == _version.__version__


def test_py_typed_ships() -> None:
    assert importlib.resources.files("everact").joinpath("py.typed").is_file()


def test_the_license_ships() -> None:
    assert importlib.metadata.metadata("everact")["License-Expression"] == "Apache-2.0"
    assert any(Path(str(f)).name == "LICENSE" for f in importlib.metadata.files("everact") or ())


def test_every_room_is_importable_from_anywhere(tmp_path: Path) -> None:
    rooms = {"everact.actors", "everact.cluster", "everact.journal", "everact.supervision"}
    assert rooms <= modules_after(f"import {', '.join(sorted(rooms))}", tmp_path)


def test_importing_everact_loads_nothing_heavy(tmp_path: Path) -> None:
    before = modules_after("pass", tmp_path)
    loaded = modules_after("from everact import *", tmp_path) - before
    assert "everact.actors.runtime" in loaded
    assert not loaded.intersection(HEAVY)
