"""``everact journal messages``, and what verify, export and import say of messages between runs."""

import json
import os
import threading
from pathlib import Path

import pytest
from support.hosting import hosted, settled
from support.sending_workflows import Sender, Waits
from typer.testing import CliRunner

from everact.cli import app
from everact.journal.lmdb_store import LmdbStore
from everact.journal.outbox import Aside, Post
from everact.journal.tables import PAIR, Table


def run(*arguments, code=0):
    """The two streams of a command."""
    done = CliRunner().invoke(app, ["journal", *map(str, arguments)])
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout, done.stderr


def error_of(*arguments):
    done = CliRunner().invoke(app, ["journal", *map(str, arguments)])
    assert done.exit_code == 1
    return str(done.exception)


@pytest.fixture
async def talking(tmp_journal):
    """A journal in which three signals are on their way to a run."""
    async with hosted(tmp_journal, Sender, Waits) as runtime:
        await runtime.spawn(Waits, id="w")
        runtime._shard.courier.stop()
        for word in ("one", "two", "three"):
            await runtime.spawn(Sender, "signal", "w", None, word, id=f"s-{word}")
        await settled(runtime)
    return tmp_journal


def put_second_aside(journal, row=None):
    """Put the second message aside, as it is or unreadable."""
    store = LmdbStore(journal)
    with store.view() as tables:
        stored = tables.get(Table.OUTBOX, PAIR.pack(0, 2))
    post = Post(0)
    post.taken = {0: [2]}
    post.aside = [Aside(0, 2, stored if row is None else row)]
    store.append(store.position, [], post)
    store.close()


def test_verify_and_messages_list_what_is_on_its_way(talking: Path) -> None:
    put_second_aside(talking)
    out, _ = run("verify", talking)
    assert (
        "messages between runs: 2 on their way, 1 put aside\n"
        "  message 2, put aside: signal 'tell' for 'w' from run 3\n"
        "  message 1, on its way: signal 'tell' for 'w' from run 2\n"
        "  message 3, on its way: signal 'tell' for 'w' from run 4\n"
        "everything is whole\n"
    ) in out
    out, _ = run("messages", talking)
    assert out.splitlines()[0] == "message 2, put aside: signal 'tell' for 'w' from run 3"
    assert len(out.splitlines()) == 3
    (first, *_) = json.loads(run("messages", talking, "--json")[0])
    assert first == {
        "sequence": 2,
        "put_aside": True,
        "what": "signal 'tell'",
        "workflow_id": "w",
        "run_id": "",
        "sender_key": 3,
        "error": "",
    }
    data = json.loads(run("verify", talking, "--json")[0])
    assert (data["waiting"], data["put_aside"], len(data["messages"])) == (2, 1, 3)


def test_without_messages_that_is_said(tmp_journal: Path) -> None:
    LmdbStore(tmp_journal).close()
    assert run("messages", tmp_journal)[0] == "no messages between runs are on their way\n"
    assert json.loads(run("messages", tmp_journal, "--json")[0]) == []


def test_what_cannot_be_read_can_be_discarded_and_nothing_else(talking: Path) -> None:
    put_second_aside(talking, b"\0" * 30)
    assert "DAMAGED: 1 problem" in run("verify", talking, code=1)[0]
    text = "no message 1 was put aside (`everact journal messages` lists them), and nothing was discarded"
    assert error_of("messages", talking, "--discard", "2", "--discard", "1") == text
    assert run("messages", talking, "--discard", "2")[0] == "discarded 1 message\n"
    assert len(run("messages", talking)[0].splitlines()) == 2
    assert "everything is whole" in run("verify", talking)[0]


def test_what_can_be_read_is_not_discarded(talking: Path) -> None:
    put_second_aside(talking)
    assert error_of("messages", talking, "--discard", "2") == (
        "message 2 can be read, and nothing was discarded: it is received at a start, once workflow 'w' can be read"
    )
    store = LmdbStore(talking)
    try:
        assert error_of("messages", talking, "--discard", "2") == (
            f"the journal '{store.path}' is in use by process {os.getpid()}: leave the message there (it holds up no "
            f"others), or stop that process first"
        )
    finally:
        store.close()


async def test_what_is_on_its_way_goes_on_in_the_journal_that_it_is_imported_into(
    talking: Path, tmp_path: Path
) -> None:
    put_second_aside(talking)
    file, other = tmp_path / "runs.jsonl", tmp_path / "other"
    assert run("export", talking, "-o", file)[1] == "exported 4 runs and 3 messages on their way\n"
    data = json.loads(run("export", talking, "-o", tmp_path / "again", "--json")[0])
    assert (data["runs"], data["messages"], data["messages_moved"]) == (4, 3, False)
    out, _ = run("import", other, file)
    assert out == "imported 4 runs with 8 events and 3 messages on their way\n"
    async with hosted(other, Sender, Waits) as runtime:
        for word in ("one", "two", "three"):
            assert await runtime.ref(f"s-{word}").result() == "delivered"
        await runtime.ref("w", Waits).signal(Waits.stop)
        assert sorted(await runtime.ref("w").result()) == ["one", "three", "two"]
    assert run("messages", other)[0].startswith("no messages")


async def test_an_export_beside_runs_that_talk_says_that_it_is_not_whole(
    talking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everact import journal_commands  # noqa: PLC0415

    original = journal_commands._json

    def spy(document):
        monkeypatch.setattr(journal_commands, "_json", original)
        put_second_aside(talking)
        return original(document)

    monkeypatch.setattr(journal_commands, "_json", spy)
    _, err = run("export", talking, "-o", tmp_path / "runs", code=1)
    assert (
        "open runs were sent messages while they were exported: one may be in the export twice, or missing."
        in err
    )
    assert "stop the program that has the journal open and export again" in err


def test_a_pipe_is_imported_too(talking: Path, tmp_path: Path) -> None:
    file, pipe = tmp_path / "runs.jsonl", tmp_path / "pipe"
    run("export", talking, "-o", file)
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(file.read_bytes()))
    writer.start()
    assert "and 3 messages" in run("import", tmp_path / "other", pipe)[0]
    writer.join()
