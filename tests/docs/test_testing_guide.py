"""The pieces of the guide to testing are the tests of the orders example, and these pass."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDERS = ROOT / "examples" / "orders"
MARK = "<!-- run by tests/docs/test_testing_guide.py -->\n```python\n"


def pieces() -> list[str]:
    text = (ROOT / "docs" / "testing-guide.md").read_text(encoding="utf-8")
    return [part.partition("\n```")[0] for part in text.split(MARK)[1:]]


def test_the_pieces_are_the_tests_of_the_example() -> None:
    found = pieces()
    assert len(found) >= 6
    assert (ORDERS / "test_orders.py").read_text(encoding="utf-8") == "\n\n\n".join(found) + "\n"


@pytest.mark.slow
def test_they_pass(tmp_path: Path) -> None:
    for name in ("orders.py", "test_orders.py"):
        shutil.copy(ORDERS / name, tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "7 passed" in ended.stdout
