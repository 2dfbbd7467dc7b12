"""The files that the type checkers read are also proper code: the declarations in the right ones hold at run time."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from everact import Runtime

HERE = Path(__file__).parent


def load(name: str) -> ModuleType:
    """Import a file of this folder."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_right_declarations_hold_at_run_time() -> None:
    assert isinstance(load("right_calls").make(), Runtime)
    assert load("right_clients").Orders
    assert isinstance(load("right_language").make(), Runtime)
    assert load("right_replay").make([])
    assert load("right_sagas").Trip
    assert load("right_steps").Stepped
    assert load("right_testing").make()


def test_there_are_many_wrong_calls_each_marked_with_its_own_code() -> None:
    text = (HERE / "wrong_calls.py").read_text(encoding="utf-8")
    assert len(re.findall(r"# type: ignore\[[\w, -]+\]$", text, re.MULTILINE)) > 100
    assert not re.findall(r"# type: ignore(?!\[)", text)
    assert "type: ignore" not in (HERE / "right_calls.py").read_text(encoding="utf-8")
