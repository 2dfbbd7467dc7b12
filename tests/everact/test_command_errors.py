"""Each command with wrong input, and with a program that is wrong, silent or gone: what, where, what to do."""

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.door_program import Program

from everact.cluster import silence
from everact.cluster.door import SOCKET_FILE

#: Each command with arguments that would do.
READING = (("list",), ("count",), ("describe", "w"), ("history", "w"), ("result", "w"))
CHANGING = (
    ("start", "Waits"),
    ("signal", "w", "hear", '"x"'),
    ("query", "w", "words"),
    ("update", "w", "add", '{"item": "a"}'),
    ("update", "w", "add", '{"item": "a"}', "--wait-for-stage", "accepted"),
    ("cancel", "w"),
    ("terminate", "w"),
    ("pause", "w"),
    ("resume", "w"),
    ("release", "w"),
    ("redrive", "w", "1"),
    ("activity", "complete", "--workflow-id", "w", "--command", "1", "--result", "7"),
    ("activity", "fail", "--workflow-id", "w", "--command", "1", "--reason", "no"),
    ("activity", "report-cancelled", "--workflow-id", "w", "--command", "1"),
    ("activity", "heartbeat", "--workflow-id", "w", "--command", "1"),
)
COMMANDS = READING + CHANGING


def named(command):
    return "-".join(command[:2]) if command[0] == "activity" else command[0]


EACH = pytest.mark.parametrize("command", COMMANDS, ids=named)


@pytest.fixture
def program(tmp_journal):
    with Program(tmp_journal) as running:
        yield running


def one_line(answer, code):
    """The text of an error: it is one line, nothing was printed, and no trace is in it."""
    found, out, err = answer
    assert (found, out) == (code, "")
    assert err.startswith("everact: error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err.removeprefix("everact: error: ").rstrip("\n")


def serve_once(path, *answers):
    """A program of another kind at the socket of a journal: it gives these answers, one to each connection."""
    path.mkdir(exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path / SOCKET_FILE))
    listening.listen()

    def serve():
        with listening:
            for answer in answers:
                peer, _ = listening.accept()
                with peer:
                    peer.recv(65536)
                    peer.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def http(body, status="200 OK"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data


# --- no journal, no program


@EACH
def test_there_is_no_journal(everact, tmp_journal, command):
    text = one_line(everact(*command), 1 if command in READING else 3)
    assert str(tmp_journal) in text
    if command in READING:
        assert text.startswith(f"there is no journal at '{tmp_journal}'")
    else:
        assert (
            "there is no such directory. Start the program whose Runtime opens it, or check the path." in text
        )


@pytest.mark.slow
@pytest.mark.parametrize("command", CHANGING, ids=named)
def test_the_journal_has_no_program(everact, tmp_journal, command):
    with Program(tmp_journal) as program:
        program.leave()
    text = one_line(everact(*command), 3)
    assert text.startswith(f"no running program answers for the journal '{tmp_journal}': there is no socket")
    assert "Start the program whose Runtime opens it" in text


AS_NOBODY = """
import os, sys
from everact.cli import main
sys.argv[1:] = ["list", "--journal", "/nowhere"]
try: main()
except SystemExit: pass
import aiohttp, everact.cluster.json_client, everact.activity_commands, rich.table
os.setgid(65534); os.setuid(65534)
import json
for arguments in json.loads(sys.stdin.read()):
    sys.argv[1:] = arguments
    try: main()
    except SystemExit as end: print(end.code, flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.slow
def test_the_journal_is_of_another_user():
    import tempfile

    with tempfile.TemporaryDirectory(prefix="everact-door-", dir="/tmp") as place:
        Path(place).chmod(0o755)
        path = Path(place, "journal")
        with Program(path):
            path.chmod(0o755)
            assert stat.S_IMODE((path / SOCKET_FILE).stat().st_mode) == 0o600
            for file in path.iterdir():
                file.chmod(0o600)
            done = subprocess.run(
                [sys.executable, "-P", "-c", AS_NOBODY],
                input=json.dumps([[*command, "--journal", str(path)] for command in COMMANDS]),
                capture_output=True,
                text=True,
                check=True,
            )
    codes, lines = done.stdout.split(), done.stderr.splitlines()[1:]
    assert len(codes) == len(lines) == len(COMMANDS)
    for command, code, line in zip(COMMANDS, codes, lines, strict=True):
        if command in READING:
            assert (code, "Permission denied" in line or "may not" in line, str(path) in line) == (
                "1",
                True,
                True,
            ), line
        else:
            assert code == "3"
            assert "its socket is for user 0 only, and this is user 65534. Start the program" in line


# --- the program refuses


@pytest.mark.slow
def test_there_is_no_such_run(everact, program):
    for command in COMMANDS:
        if command[0] in ("list", "count", "start"):
            continue
        assert one_line(everact(*command), 1) == (
            "no workflow 'w' in this journal: start it first, or check the id"
        )


@pytest.mark.slow
def test_the_run_has_ended(everact, program):
    everact("start", "Waits", "--id", "w")
    everact("terminate", "w")
    for command in CHANGING:
        if command[0] in ("start", "query", "redrive"):
            continue
        text = one_line(everact(*command), 1)
        if command[0] == "activity":
            assert "does not wait for activity command 1 any more: it has ended" in text
        else:
            assert text.startswith("workflow 'w' (run ")
            assert "terminated" in text
    assert "workflow 'w' (run " in one_line(everact("redrive", "w", "1"), 1)
    assert one_line(everact("result", "w"), 1).endswith("was terminated: no reason given")


@pytest.mark.slow
def test_the_program_does_not_have_the_type(everact, tmp_journal):
    from everact import Runtime, workflow

    @workflow.defn
    class Unknown:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

    async def leave_one():
        async with Runtime(tmp_journal, workflows=[Unknown], grace=0.0) as runtime:
            await runtime.spawn(Unknown, id="w")

    import asyncio

    asyncio.run(leave_one())
    with Program(tmp_journal):
        known = (
            "workflow type 'Unknown' is not registered with this runtime; known: Asks, Blocks, Free, Waits"
        )
        assert one_line(everact("start", "Unknown"), 1).startswith(known)
        assert one_line(everact("query", "w", "words"), 1).startswith(known)
        for command in (("result", "w"), ("update", "w", "add", '{"item": "a"}')):
            assert "is held" in one_line(everact(*command), 1)
        assert everact("describe", "w")[0] == 0


@pytest.mark.slow
def test_there_is_no_such_handler(everact, program):
    everact("start", "Waits", "--id", "w")
    for kind, known in (
        ("signal", "finish, hear, take"),
        ("query", "breaks, holds, raw, words"),
        ("update", "add, until"),
    ):
        text = one_line(everact(kind, "w", "nope"), 1)
        assert text.startswith(f"workflow Waits has no {kind} 'nope'; it has: {known}")


# --- wrong usage


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("start", "Waits", "{"), "'{' is no JSON"),
        (("activity", "complete", "--token", "x", "--result", "tea"), "'tea' is no JSON"),
        (("activity", "complete", "--token", "x"), "Missing option '--result'"),
        (("activity", "complete", "--result", "7"), "give --token, or --workflow-id and --command"),
        (("activity", "complete", "--result", "7", "--workflow-id", "w"), "give --token, or --workflow-id and"),
        (
            ("activity", "heartbeat", "--token", "x", "--workflow-id", "w", "--command", "1"),
            "give --token, or --workflow-id and --command",
        ),
        (("activity", "heartbeat", "--token", "x", "--run-id", "r"), "give --token, or --workflow-id and"),
        (("activity", "fail", "--token", "x"), "Missing option '--reason'"),
        (("update", "w", "add", "--wait-for-stage", "soon"), "must be 'accepted' or 'completed', not 'soon'"),
        (("list", "--timeout", "0"), "'--timeout'"),
        (("nope",), "No such command 'nope'"),
        (("activity", "nope"), "No such command 'nope'"),
        (("describe",), "Missing argument 'ID'"),
    ],
)  # fmt: skip
def test_wrong_usage_is_said_before_anybody_is_asked(everact, command, says):
    code, out, err = everact(*command)
    assert (code, out) == (2, "")
    assert says in " ".join(err.replace("│", " ").split())


@pytest.mark.slow
def test_wrong_texts_are_refused_in_one_line(everact, program):
    for command, says in (
        (("list", "--next-page-token", "x"), "'x' is no next_page_token: pass one as an earlier list had it"),
        (("activity", "heartbeat", "--token", "x"), "'x' is no task token: pass activity.info().task_token"),
        (("describe", "everact://other/w"), "'everact://other/w' is of cluster 'other'; this is 'local'"),
        (("query", "w" * 1001, "words"), "a workflow id may have up to 1000 bytes"),
    ):
        assert says in one_line(everact(*command), 1)


# --- the other side is something else


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail ready\r\n\r\n",
        http(b"<html>", "404 Not Found"),
        http({"hello": 1}),
        http([]),
        http(b"\xff"),
        http(b"[" * 5000),
    ],
    ids=["mail", "web", "other", "list", "bytes", "deep"],
)  # fmt: skip
def test_what_listens_is_no_everact(everact, tmp_journal, answer):
    serving = serve_once(tmp_journal, answer)
    text = one_line(everact("signal", "w", "hear"), 1)
    serving.join()
    if b"404" in answer:
        assert text == "the program answered with status 404: <html>"
    else:
        assert text.startswith(
            f"at the socket of the journal '{tmp_journal}' what listens there answered in a form"
        )
        assert text.endswith("): use one version on both sides")


def test_another_version_is_named(everact, tmp_journal):
    from everact import __version__

    about = http({"name": "local", "version": "0.0.1", "pid": 1, "workflows": []})
    refusal = {
        "error": {"type": "CallRefusedError", "message": "there is no /v1/workflows/w/signals/hear here"}
    }
    serving = serve_once(tmp_journal, about, http(refusal, "404 Not Found"))
    text = one_line(everact("signal", "w", "hear"), 1)
    serving.join()
    assert text == (
        f"there is no /v1/workflows/w/signals/hear here. The program runs Everact 0.0.1 and this is {__version__}: use "
        f"one version"
    )


def test_an_answer_of_an_unknown_form_is_said(everact, tmp_journal):
    about = http({"name": "local", "version": "9.9", "pid": 1, "workflows": []})
    for command in (
        ("list",),
        ("count",),
        ("describe", "w"),
        ("query", "w", "x"),
        ("start", "W"),
        ("history", "w"),
    ):
        serving = serve_once(tmp_journal, about, http({"odd": 1}))
        text = one_line(everact(*command), 1)
        serving.join()
        (tmp_journal / SOCKET_FILE).unlink()
        assert "the program, Everact 9.9, answered in a form that this Everact" in text


# --- the program is silent, or goes away in the middle


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(silence, "SUSPICIOUS", 0.05)
    monkeypatch.setattr(silence, "PATIENCE", 0.15)


@pytest.mark.slow
def test_a_program_whose_loop_is_held_is_said_and_not_waited_for_longer_than_wanted(
    everact, program, tmp_path, impatient
):
    free = tmp_path / "free"
    everact("start", "Blocks", "--id", "b")
    with subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "everact",
            "query",
            "b",
            "held",
            json.dumps(str(free)),
            "--timeout",
            "60",
        ],
        env={**os.environ, "EVERACT_JOURNAL": str(tmp_path / "journal")},
        stdout=subprocess.PIPE,
        cwd="/",
    ) as asking:
        silent = ""
        while "is held by query 'held' of workflow 'b'" not in silent:
            code, out, silent = everact("list", "--timeout", "0.4")
        notice, error = silent.splitlines()
        holder = notice.partition("does not answer: ")[2].partition(";")[0]
        assert notice.endswith("; waiting up to 0.4 s for it (--timeout)")
        assert (code, out) == (5, "")
        assert error.startswith(
            f"everact: error: the program that has the journal '{tmp_path}/journal' open did not "
        )
        assert error.endswith(
            f"within 0.4 s ({holder}). Nothing was changed: repeat the command, or give it more time with --timeout"
        )
        free.touch()
        assert asking.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("start", "Waits", "--id", "x y", "--request-id", "r"), "with --id 'x y' --request-id r: it is then done"),
        (("start", "Waits"), "repeat the command when the program runs again with --id "),
        (("signal", "w", "hear", '"a"', "--request-id", "r"), "with --request-id r: it is then done once"),
        (("pause", "w", "--request-id", "r"), "when the program runs again with --request-id r: it is then done once"),
        (("update", "w", "add", '{"item": "a"}', "--request-id", "r"), "with --request-id r: it is then done once"),
        (("terminate", "w"), "when the program runs again with --run-id "),
        (
            ("activity", "complete", "--workflow-id", "a", "--command", "1", "--result", '{"item": "a"}'),
            "repeat the command when the program runs again: it is done at most once",
        ),
    ],
    ids=lambda value: named(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_a_program_that_is_killed_in_the_middle_leaves_it_unknown_and_says_how_to_repeat(
    everact, tmp_journal, command, says
):
    with Program(tmp_journal):
        everact("start", "Waits", "--id", "w")
        everact("start", "Asks", "--id", "a")
        while '"completed_outside":true' not in everact("describe", "a", "--json")[1].replace(" ", ""):
            pass
    with Program(tmp_journal, EVERACT_FAULT="message.ack.before:1"):
        text = one_line(everact(*command, "--timeout", "1"), 5)
    assert text.startswith(
        f"the program that had the journal '{tmp_journal}' open went away in the middle of the call, and none has come "
        f"back in time: nobody listens at its socket 'everact.sock'"
    )
    assert "Whether it was done is unknown; " in text
    assert says in text
    options = text.partition("when the program runs again with ")[2].partition(": it is")[0]
    with Program(tmp_journal):
        import shlex

        again = list(command) if "--id" in command else [*command, *shlex.split(options)]
        code, _out, err = everact(*again)
        if command[0] in ("terminate", "activity"):  # it was done the first time
            assert code == 1
            assert "terminated" in err or "any more: it has ended" in err
        else:
            assert (code, err) == (0, "")
        if command[0] == "signal":
            assert json.loads(everact("query", "w", "words")[1]) == ["a"]
        if command[0] == "start":
            assert json.loads(everact("count", "--json")[1]) == {"count": 3}
