"""A Runtime lets the garbage collector look less often, and leaves it as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from everact import Runtime
from everact.actors.collector import THRESHOLD

STOCK = (700, 10, 10)


@pytest.fixture(autouse=True)
def threshold() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*STOCK)
    yield
    gc.set_threshold(*before)


async def test_it_is_raised_while_any_runtime_is_open(tmp_path: Path) -> None:
    async with Runtime(tmp_path / "one"):
        assert gc.get_threshold() == (THRESHOLD, 10, 10)
        async with Runtime(tmp_path / "two"):
            pass
        assert gc.get_threshold() == (THRESHOLD, 10, 10)
    assert gc.get_threshold() == STOCK


async def test_what_the_program_sets_meanwhile_stays(tmp_path: Path) -> None:
    async with Runtime(tmp_path / "journal"):
        gc.set_threshold(900, 5, 5)
    assert gc.get_threshold() == (900, 5, 5)


@pytest.mark.parametrize("own", [(0, 10, 10), (THRESHOLD + 1, 3, 3)])
async def test_one_that_is_off_or_higher_is_left_alone(own: tuple[int, int, int], tmp_path: Path) -> None:
    gc.set_threshold(*own)
    async with Runtime(tmp_path / "journal"):
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


async def test_a_runtime_that_cannot_be_entered_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(Exception, match="file"):
        async with Runtime(tmp_path / "file" / "journal"):
            pass
    assert gc.get_threshold() == STOCK
