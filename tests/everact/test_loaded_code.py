"""``everact debug`` and ``everact replay`` import a program's file; they refuse one that would run by that."""

import asyncio
import shlex
import sys
from pathlib import Path

import pytest
from support.corpus import GOOD

from everact import Runtime, workflow
from everact.cli import main
from everact.debugging.code_files import module_of
from everact.debugging.loading import only_importing

FLOW = """\
import asyncio
import contextlib
import sys

from everact import Runtime, blocking, workflow


@workflow.defn
class Feature:
    @workflow.run
    async def run(self, what: str) -> None: ...


async def main() -> None:
    async with Runtime("made-by-import", workflows=[Feature]):
        pass


def begin():
    try:
        asyncio.run(main())
    except Exception:
        print("not caught")


"""
LINE = FLOW.count("\n") + 1


def command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["everact", *map(str, arguments)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("start", "what"),
    [
        ("asyncio.run(main())", "starts its program"),
        ("begin()", "starts its program"),
        (
            "with contextlib.closing(asyncio.new_event_loop()) as loop: loop.run_until_complete(main())",
            "starts its program",
        ),
        ('with blocking.Runtime("made-by-import", workflows=[Feature]): pass', "starts its program"),
        ("sys.exit(3)", "ends the process"),
    ],
)
def test_a_file_that_starts_its_program_is_refused_with_the_line(tmp_path, monkeypatch, capsys, start, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "started.py").write_text(FLOW + start + "\n")
    text = (
        f"everact: error: 'started.py' {what} when it is imported ({tmp_path}/started.py:{LINE}): put that line under "
        f'if __name__ == "__main__":\n'
    )
    history = GOOD / "timer.json"
    assert command(monkeypatch, capsys, "replay", history, "--module", "started.py") == (1, text)
    assert command(monkeypatch, capsys, "debug", history, "--to-event", "1", "-m", "started.py") == (1, text)
    code, said = command(monkeypatch, capsys, "replay", history, "--workflows", "started")
    assert (code, said) == (1, text.replace("'started.py'", "'started'"))
    assert not Path("made-by-import").exists()
    assert "started" not in sys.modules


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("def (:", "SyntaxError: invalid syntax"),
        ("{}['tea']", "KeyError: 'tea'"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_line_and_error(
    tmp_path, monkeypatch, capsys, line, what
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.py").write_text(f"x = 1\n{line}\n")
    text = f"everact: error: 'wrong.py' cannot be imported: {tmp_path}/wrong.py:2: {what}\n"
    history = GOOD / "timer.json"
    assert command(monkeypatch, capsys, "replay", history, "--module", "wrong.py") == (1, text)
    assert command(monkeypatch, capsys, "debug", history, "--to-event", "1", "-m", "wrong.py") == (1, text)
    named = command(monkeypatch, capsys, "debug", history, "--to-event", "1", "-w", "wrong")
    assert named == (1, text.replace("'wrong.py'", "'wrong'"))
    assert "wrong" not in sys.modules


def test_what_is_imported_may_still_run_later(tmp_path):
    (tmp_path / "kept_start.py").write_text("from asyncio import run\n")

    async def three():
        return 3

    module = module_of(tmp_path / "kept_start.py")
    try:
        assert module.run(three()) == 3
    finally:
        del sys.modules["kept_start"]
        sys.path.remove(str(tmp_path))


def test_another_thread_may_run_a_loop_meanwhile():
    async def three():
        return 3

    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor() as pool, only_importing("it"):
        assert pool.submit(asyncio.run, three()).result() == 3


def test_replay_takes_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "feature_file.py").write_text("from support.corpus_workflows import Feature\n")
    assert command(monkeypatch, capsys, "replay", GOOD / "timer.json", "--module", "feature_file.py") == (
        0,
        "",
    )
    monkeypatch.delitem(sys.modules, "feature_file")
    code, said = command(monkeypatch, capsys, "replay", GOOD / "timer.json", "--module", "nowhere.py")
    assert code == 1
    assert said.startswith(
        "everact: error: there is no file 'nowhere.py': --module takes the path of a Python"
    )


@workflow.defn
class Empty:
    @workflow.run
    async def run(self) -> None: ...


def test_a_workflow_id_in_place_of_a_file_is_told_how_to_get_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (
        "everact: error: there is no file 'inv-1': what is wanted is a file with the history of a run. Write one with "
        "`everact history inv-1 --journal DIR --json > history.json`, or `everact journal export DIR inv-1 -o "
        "history.json`\n"
    )
    assert command(monkeypatch, capsys, "debug", "inv-1", "--to-event", "1", "-w", "flows") == (1, text)
    assert command(monkeypatch, capsys, "replay", "inv-1", "-w", "support.corpus_workflows:Feature") == (
        1,
        text,
    )
    code, said = command(monkeypatch, capsys, "debug", tmp_path, "--to-event", "1", "-w", "flows")
    assert code == 1
    assert f"'{tmp_path}' is a folder: what is wanted is a file" in said
    code, said = command(monkeypatch, capsys, "replay", "no.json", "-w", "support.corpus_workflows:Feature")
    assert "`everact history ID --journal DIR --json > history.json`" in said

    async def live():
        async with Runtime("journal", workflows=[Empty]) as runtime:
            await runtime.execute(Empty, id="inv-1")

    asyncio.run(live())
    told = text.partition(", or `")[2].rstrip("`\n").replace(" DIR ", " journal ")
    monkeypatch.setattr(sys, "argv", shlex.split(told))  # what it says is true
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code in {0, None}
    assert Path("history.json").exists()
