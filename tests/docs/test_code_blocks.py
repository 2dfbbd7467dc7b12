"""Every fenced ``python`` block of README.md and docs/*.md runs, in the order of its page.

The rule for authors:

* The blocks of a page share one namespace. ``await`` and ``async with`` are allowed at top level, as in
  ``python -m asyncio``; a block that calls ``asyncio.run`` itself is fine too. Each page has an empty directory,
  and what it sets on Everact's loggers holds for that page only.
* A ``text`` block right behind a ``python`` block is exactly what that block prints. In traces, the line numbers of the
  page itself are left out, ``File "docs/errors.md", in look_up``: no reader counts lines, and every edit moves them.
* ``<!-- not run -->`` on the line before a block keeps it from running. It is for fragments only.
* ``<!-- run by tests/docs/... -->`` there says that another test runs it, as a program of its own.
"""

import ast
import asyncio
import builtins
import contextlib
import inspect
import io
import logging
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXPLAINED = (
    "A bare `await` or `async with` in these blocks belongs into `async def main()`, run by `asyncio.run(main())`; "
    "`python -m asyncio` takes it as it stands, without the blank lines inside classes and functions."
)
NOT_RUN = "<!-- not run -->"
ELSEWHERE = re.compile(r"<!-- run by (tests/docs/\w+\.py) -->")
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    code: str
    line: int
    end: int
    runs: bool
    is_fragment: bool = False


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        before = text[: match.start()].rstrip("\n").rpartition("\n")[2]
        line = text.count("\n", 0, match.start("code")) + 1
        end = text.count("\n", 0, match.end()) + 1
        elsewhere = ELSEWHERE.fullmatch(before)
        assert elsewhere is None or (ROOT / elsewhere[1]).exists()
        runs = elsewhere is None and before != NOT_RUN
        found.append(Block(match["language"], match["code"], line, end, runs, before == NOT_RUN))
    return found


def run_block(block: Block, name: str, space: dict[str, object], runner: asyncio.Runner) -> str:
    """What the block prints, without the line numbers of its page."""
    code = compile(
        "\n" * (block.line - 1) + block.code,
        name,
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if code.co_flags & inspect.CO_COROUTINE:
            space.setdefault("__builtins__", builtins)  # as exec does; C code that imports looks there
            function = types.FunctionType(code, space)
            runner.run(function())
        else:
            exec(code, space)
    return re.sub(rf'(File "{re.escape(name)}"), line \d+', r"\1", printed.getvalue())


@pytest.fixture
def _loggers_of_its_own() -> Iterator[None]:
    """What a page sets on Everact's loggers is gone after it, as after a program."""
    loggers = [
        logging.getLogger(name)
        for name in ("everact", "everact.runtime", "everact.workflow", "everact.activity")
    ]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.mark.slow
@pytest.mark.usefixtures("_loggers_of_its_own")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = blocks_of(page)
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    name = page.relative_to(ROOT).as_posix()
    with asyncio.Runner() as runner:
        for block, behind in zip(blocks, [*blocks[1:], None], strict=False):
            if block.language != "python" or not block.runs:
                continue
            printed = run_block(block, name, module.__dict__, runner)
            if behind is not None and behind.language == "text" and behind.line - block.end == 3:
                assert printed == behind.code, f"{name}:{behind.line} says otherwise"


def top_level_await(block: Block) -> bool:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(block.code, "block", "exec", flags=flags, dont_inherit=True)
    return bool(code.co_flags & inspect.CO_COROUTINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_explains_await_outside_of_functions_before_it_uses_it(page: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.language == "python" and block.runs]
    first = next((block.line for block in blocks if top_level_await(block)), None)
    if first is not None:
        above = "\n".join(page.read_text(encoding="utf-8").splitlines()[:first])
        assert EXPLAINED in above


def test_few_blocks_do_not_run() -> None:
    python = [block for page in PAGES for block in blocks_of(page) if block.language == "python"]
    assert len(python) >= 20
    assert sum(block.is_fragment for block in python) <= 4


def test_a_block_with_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# T\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n<!-- not run -->\n```python\n1 +\n```\n"
    )
    code, output, fragment = blocks_of(page)
    assert (code.code, code.line, code.end, code.runs) == ("print(1)\n", 4, 5, True)
    assert output.line - code.end == 3
    assert not fragment.runs
    with asyncio.Runner() as runner:
        assert run_block(code, "page.md", {}, runner) == output.code


def test_a_trace_has_no_line_numbers_of_its_page_and_those_of_others() -> None:
    block = Block(
        "python", "print('File \"a.md\", line 7, in f', 'File \"b.py\", line 8, in g')\n", 4, 5, runs=True
    )
    with asyncio.Runner() as runner:
        assert run_block(block, "a.md", {}, runner) == 'File "a.md", in f File "b.py", line 8, in g\n'
