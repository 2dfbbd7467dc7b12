"""The socket beside a journal: who may use it, when it is there, and what it answers to what is no proper call."""

import asyncio
import json
import logging
import os
import shutil
import socket
import stat
import sys
from pathlib import Path

import pytest
from support.door_calls import ask, refused
from support.door_program import Program
from support.door_workflows import WORKFLOWS, Free, Waits, asks
from support.hosting import until

from everact import Client, Runtime, WorkflowHandle
from everact.actors.runtime import NO_DOOR
from everact.cluster import calls, door, unix_server
from everact.exceptions import JournalLockedError
from everact.journal.backup import backup
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryJournal, MemoryStore


def hosted(path, **options):
    return Runtime(path, workflows=WORKFLOWS, activities=[asks], grace=0.0, **options)


# --- the socket


async def test_only_the_owner_may_use_it_and_it_is_gone_after_leaving(tmp_journal):
    async with hosted(tmp_journal):
        status = (tmp_journal / door.SOCKET_FILE).lstat()
        assert stat.S_ISSOCK(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == 0o600
    assert not (tmp_journal / door.SOCKET_FILE).exists()


async def test_a_runtime_without_clients_has_no_http_server(tmp_journal):
    async with hosted(tmp_journal) as runtime:
        assert runtime._door._http is None
        assert (await ask(tmp_journal, "GET", "/v1"))[0] == 200
        assert runtime._door._http is not None


async def test_there_is_no_door_when_none_is_wanted_and_none_for_memory(tmp_journal):
    async with hosted(tmp_journal, door=False) as runtime:
        assert runtime._door is NO_DOOR
        assert not (tmp_journal / door.SOCKET_FILE).exists()
    async with hosted(MemoryStore(MemoryJournal())) as runtime:
        assert runtime._door is NO_DOOR
    with pytest.raises(TypeError, match="door must be True or False, not 'yes'"):
        hosted(tmp_journal, door="yes")


async def test_a_store_that_was_opened_by_the_caller_has_a_door_too(tmp_journal):
    async with hosted(LmdbStore(tmp_journal)):
        assert (await ask(tmp_journal, "GET", "/v1"))[1]["pid"] == os.getpid()


async def test_the_socket_of_a_dead_owner_is_replaced(tmp_journal):
    tmp_journal.mkdir()
    async with hosted(tmp_journal, door=False):
        pass
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_journal / door.SOCKET_FILE))
    left.close()
    async with hosted(tmp_journal):
        assert (await ask(tmp_journal, "GET", "/v1"))[0] == 200


@pytest.mark.parametrize("start", ["a runtime", "a runtime without a door", "a command that writes"])
async def test_what_a_killed_program_has_left_is_gone_after_the_next_start(tmp_journal, tmp_path, start):
    with Program(tmp_journal) as program:
        program.kill()
        program.process.wait()
    place = tmp_journal / door.SOCKET_FILE
    assert place.is_socket()
    assert backup(tmp_journal, tmp_path / "copy").report.is_sound  # which needs no next start
    assert not (tmp_path / "copy" / door.SOCKET_FILE).exists()
    if start == "a command that writes":
        LmdbStore(tmp_journal).close()
    else:
        async with hosted(tmp_journal, door=start == "a runtime"):
            assert place.exists() is (start == "a runtime")
    assert not place.exists()
    shutil.copytree(tmp_journal, tmp_path / "tree")


async def test_a_second_runtime_on_the_journal_is_told_of_the_first_and_leaves_its_door_open(tmp_journal):
    with Program(tmp_journal) as program:
        with pytest.raises(JournalLockedError) as caught:
            await hosted(tmp_journal).__aenter__()
        assert f"connect to it with everact.Client.connect('unix:{tmp_journal}')" in str(caught.value)
        assert (await ask(tmp_journal, "GET", "/v1"))[1]["pid"] == program.process.pid
        program.leave()
    async with hosted(tmp_journal):
        with pytest.raises(JournalLockedError, match="is already open in this process"):
            await hosted(tmp_journal).__aenter__()
        assert (await ask(tmp_journal, "GET", "/v1"))[1]["pid"] == os.getpid()


async def test_what_is_no_socket_is_left_alone_and_the_runtime_goes_on(tmp_journal, caplog):
    async with hosted(tmp_journal, door=False):
        pass
    place = tmp_journal / door.SOCKET_FILE
    place.write_text("mine")
    with caplog.at_level(logging.WARNING, "everact.runtime"):
        async with hosted(tmp_journal) as runtime:
            await runtime.spawn(Waits, id="w")
    assert place.read_text() == "mine"
    assert f"the journal '{tmp_journal}' has no door" in caplog.text
    assert "is no socket; move it away" in caplog.text


async def test_a_newer_socket_of_the_same_name_is_not_removed(tmp_journal):
    place = tmp_journal / door.SOCKET_FILE
    async with hosted(tmp_journal):
        place.rename(tmp_journal / "moved")  # its inode stays taken
        place.write_text("another")
    assert place.read_text() == "another"


@pytest.mark.skipif(sys.platform != "linux", reason="goes by /proc")
async def test_a_path_that_is_too_long_for_a_socket_works_all_the_same(tmp_path):
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    async with hosted(deep), await Client.connect(f"unix:{deep}") as client:
        assert (deep / door.SOCKET_FILE).exists()
        assert await client.count_workflows() == 0


async def test_without_proc_a_path_that_is_too_long_is_said(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(door, "PROC", "/nowhere")
    deep = tmp_path / ("d" * 120)
    with caplog.at_level(logging.WARNING, "everact.runtime"):
        async with hosted(deep):
            pass
    assert "is too long for a unix socket: give the journal a shorter one" in caplog.text


async def test_processes_of_other_users_are_refused(tmp_journal, monkeypatch):
    async with hosted(tmp_journal):
        monkeypatch.setattr(unix_server, "_allowed", lambda: (os.getuid() + 1,))
        answer = await refused(tmp_journal, "GET", "/v1")
    assert answer == (403, "CallRefusedError", "this program serves processes of its own user only")


async def test_too_many_connections_are_refused(tmp_journal, monkeypatch):
    monkeypatch.setattr(door, "MOST_CONNECTIONS", 2)
    async with hosted(tmp_journal) as runtime:
        assert (await ask(tmp_journal, "GET", "/v1"))[0] == 200
        await until(lambda: not runtime._door._http.connections)
        others = [await asyncio.open_unix_connection(tmp_journal / door.SOCKET_FILE) for _ in range(2)]
        await until(lambda: len(runtime._door._http.connections) == 2)
        status, _kind, text = await refused(tmp_journal, "GET", "/v1")
        assert (status, text) == (503, "this program serves 2 connections at a time: try again later")
        for _reader, writer in others:
            writer.close()


# --- what is no proper call


@pytest.mark.parametrize(
    ("method", "url", "body", "status", "says"),
    [
        ("GET", "/", None, 404, "there is no / here; this Everact"),
        ("GET", "/v2/workflows", None, 404, "there is no /v2/workflows here"),
        ("GET", "/v1/workflows/", None, 404, "has /v1, /v1/workflows, "),
        ("DELETE", "/v1/workflows", None, 405, "/v1/workflows takes GET and POST, not DELETE"),
        ("GET", "/v1/workflows/w/cancel", None, 405, "takes POST, not GET"),
        ("GET", "/v1/workflows/%FF", None, 400, "'%FF' in the path is not valid UTF-8"),
        ("GET", "/v1/workflows?statu=running", None, 400, "unknown query parameter 'statu'"),
        ("GET", "/v1/workflows/w/result?wait=soon", None, 400, "wait must be a number of seconds, not 'soon'"),
        ("POST", "/v1/workflows", b"{", 400, "the body of the call is no JSON: "),
        ("POST", "/v1/workflows", b"\xff\xfe", 400, "the body of the call "),
        ("POST", "/v1/workflows", b"[" * 100_000, 400, "the body of the call "),
        ("POST", "/v1/workflows", b"[]", 400, "the body of the call does not fit: Expected `object`, got `array`"),
        ("POST", "/v1/workflows", b"", 400, "missing required field `workflow`"),
        ("POST", "/v1/workflows", b'{"workflow": 1}', 400, "Expected `str`, got `int` - at `$.workflow`"),
        ("POST", "/v1/workflows", b'{"workflow": "Waits", "arg": []}', 400, "contains unknown field `arg`"),
        ("POST", "/v1/workflows/w/cancel", b'{"why": 1}', 400, "contains unknown field `why`"),
        ("POST", "/v1/workflows/w/updates/add", b'{"wait": 1, "args": [{"item": "a"}]}', 400, "needs a request_id"),
    ],
)  # fmt: skip
async def test_what_is_no_call_is_refused_in_words(tmp_journal, method, url, body, status, says):
    async with hosted(tmp_journal) as runtime:
        await runtime.spawn(Waits, id="w")
        found, kind, text = await refused(tmp_journal, method, url, body)
        assert (found, kind) == (status, "CallRefusedError")
        assert says in text
        assert await runtime.count_workflows() == 1


@pytest.mark.parametrize(
    ("url", "body", "status", "kind", "says"),
    [
        ("", {"workflow": "Nope"}, 404, "WorkflowNotRegisteredError", "known: Asks, Free, Waits"),
        ("", {"workflow": "Waits", "options": {"idd": "a"}}, 400, "TypeError", "unknown start option 'idd'"),
        ("", {"workflow": "Waits", "options": {"id": ""}}, 400, "ValueError", "a workflow id must not be empty"),
        ("", {"workflow": "Waits", "options": {"id": "w"}}, 409, "WorkflowAlreadyStartedError", "if_running refuses"),
        ("", {"workflow": "Waits", "args": [1, 2]}, 400, "TypeError", "workflow Waits: "),
        ("", {"workflow": "Waits", "args": [{"itm": 1}]}, 400, "PayloadEncodeError", "argument 'order' of workflow W"),
        ("/none/signals/hear", {"args": ["a"]}, 404, "WorkflowNotFoundError", "no workflow 'none' in this journal"),
        ("/w/signals/hear?run_id=x", {"args": ["a"]}, 404, "WorkflowNotFoundError", "with run id 'x'"),
        ("/w/signals/hear?type=Free", {"args": ["a"]}, 409, "WorkflowTypeError", "is a Waits, not a Free"),
        ("/w/signals/heat", {"args": ["a"]}, 404, "UnknownHandlerError", "it has: finish, hear"),
        ("/w/signals/hear", {"args": [1]}, 400, "PayloadEncodeError", "expected str, got int 1"),
        ("/w/signals/hear", {}, 400, "TypeError", "signal Waits.hear: "),
        ("/w/queries/breaks", {}, 422, "QueryFailedError", "raised KeyError"),
        ("/w/updates/add", {"args": [{"item": "a", "count": -1}]}, 422, "UpdateRejectedError", "count is negative"),
        ("/w/updates/add", {"args": [{"item": ""}]}, 422, "UpdateFailedError", "NoItem: no item"),
    ],
)  # fmt: skip
async def test_what_the_runtime_refuses_is_said_with_its_status(tmp_journal, url, body, status, kind, says):
    async with hosted(tmp_journal) as runtime:
        await runtime.spawn(Waits, id="w")
        found, name, text = await refused(tmp_journal, "POST", f"/v1/workflows{url}", json.dumps(body))
        assert (found, name) == (status, kind)
        assert says in text


async def test_a_body_that_is_too_large_is_refused_before_it_is_all_read(tmp_journal, monkeypatch):
    monkeypatch.setattr(calls, "BODY_LIMIT", 1000)
    async with hosted(tmp_journal):
        answer = await refused(tmp_journal, "POST", "/v1/workflows", b" " * 2000)
    assert answer == (413, "CallRefusedError", "the body of a call may have up to 1,000 bytes")


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: no\r\n\r\n",
        b"GET /" + b"x" * 50_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/workflows HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_http_is_refused_and_is_no_line_in_the_log(tmp_journal, garbage, caplog):
    async with hosted(tmp_journal):
        reader, writer = await asyncio.open_unix_connection(tmp_journal / door.SOCKET_FILE)
        writer.write(garbage)
        assert (await reader.read()).startswith(b"HTTP/1.0 400 Bad Request")
        writer.close()
        assert (await ask(tmp_journal, "GET", "/v1"))[0] == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_run_whose_type_is_not_registered_receives_signals_and_answers_nothing(tmp_journal):
    async with hosted(tmp_journal) as runtime:
        await runtime.spawn(Waits, id="w")
    async with Runtime(tmp_journal, workflows=[Free], grace=0.0):
        status, _ = await ask(tmp_journal, "POST", "/v1/workflows/w/signals/hear", b'{"args": ["kept"]}')
        assert status == 200
        status, kind, _ = await refused(tmp_journal, "POST", "/v1/workflows/w/queries/words")
        assert (status, kind) == (404, "WorkflowNotRegisteredError")
        status, kind, _ = await refused(tmp_journal, "GET", "/v1/workflows/w/result")
        assert (status, kind) == (409, "WorkflowHeldError")
    async with hosted(tmp_journal):
        _, answer = await ask(tmp_journal, "POST", "/v1/workflows/w/queries/words")
        assert answer == {"result": ["kept"]}


async def test_an_error_of_ours_is_told_and_logged(tmp_journal, monkeypatch, caplog):
    def broken(*_args, **_options):
        raise AssertionError("ours")

    async with hosted(tmp_journal) as runtime:
        monkeypatch.setattr(runtime, "_count_workflows", broken)
        with caplog.at_level(logging.ERROR, "everact.runtime"):
            answer = await refused(tmp_journal, "GET", "/v1/workflow-count")
    assert answer == (500, "CallRefusedError", "AssertionError: ours")
    assert "a call from another process failed: GET /v1/workflow-count" in caplog.text
    caplog.clear()


async def test_a_pickle_does_not_leave_the_program_and_none_comes_in(tmp_journal):
    class Odd:
        def __eq__(self, other):
            return type(other) is Odd

    async with hosted(tmp_journal, trust_pickle=True) as runtime:
        await runtime.spawn("Free", Odd(), id="f")
        status, kind, text = await refused(tmp_journal, "GET", "/v1/workflows/f/result")
        assert (status, kind) == (400, "PayloadEncodeError")
        assert "has the stored form 'pickle', which only its own program reads" in text
        body = json.dumps({"workflow": "Free", "args": [{"encoding": "pickle", "base64": "gASVAAAA"}]})
        _, started = await ask(tmp_journal, "POST", "/v1/workflows", body)
        _, answer = await ask(tmp_journal, "GET", f"/v1/workflows/{started['workflow_id']}/result")
        assert answer["result"] == [{"encoding": "pickle", "base64": "gASVAAAA"}]  # a dict like any other


# --- long lists, waiting clients


async def test_many_rows_are_one_document(tmp_journal, monkeypatch):
    monkeypatch.setattr(calls, "ROWS", 3)
    async with hosted(tmp_journal) as runtime:
        for count in range(8):
            _, answer = await ask(tmp_journal, "GET", "/v1/workflows")
            ids = [row["workflow_id"] for row in answer["workflows"]]
            assert ids == [f"w-{number}" for number in reversed(range(count))]
            assert answer["next_page_token"] is None
            await runtime.spawn("Free", id=f"w-{count}")


async def test_a_list_has_pages(tmp_journal):
    async with hosted(tmp_journal) as runtime:
        for number in range(7):
            await runtime.spawn("Free", id=f"w-{number}")
        await runtime.spawn(Waits, id="other")
        found, url = [], "/v1/workflows?page_size=3&type=Free"
        token = ""
        while token is not None:
            _, answer = await ask(tmp_journal, "GET", f"{url}{token and '&next_page_token='}{token}")
            found.append([row["workflow_id"] for row in answer["workflows"]])
            token = answer["next_page_token"]
        assert found == [["w-6", "w-5", "w-4"], ["w-3", "w-2", "w-1"], ["w-0"]]
        for url, kind, says in (
            ("page_size=0", "ValueError", "page_size must be 1 or more, not 0"),
            ("page_size=1001", "ValueError", "page_size must be at most 1,000, not 1,001"),
            ("page_size=ten", "TypeError", "page_size must be an int, not 'ten'"),
            (f"page_size={'9' * 5000}", "TypeError", "page_size must be an int"),
            (
                "next_page_token=x",
                "ValueError",
                "'x' is no next_page_token: pass one as an earlier list had it",
            ),
            ("next_page_token=%C3%A9", "ValueError", "is no next_page_token"),
            ("limit=3", "CallRefusedError", "unknown query parameter 'limit'"),
        ):
            status, name, text = await refused(tmp_journal, "GET", f"/v1/workflows?{url}")
            assert (status, name) == (400, kind)
            assert says in text


async def test_a_client_that_does_not_read_holds_nobody(tmp_journal, monkeypatch):
    async with hosted(tmp_journal) as runtime:
        handle = await runtime.spawn(Waits, id="w")
        history = await handle.fetch_history()
        history.records *= 50_000

        async def many(_self):
            return history

        monkeypatch.setattr(WorkflowHandle, "fetch_history", many)
        reader, writer = await asyncio.open_unix_connection(tmp_journal / door.SOCKET_FILE, limit=1)
        writer.write(b"GET /v1/workflows/w/history HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readexactly(1)
        for _ in range(100):
            assert (await ask(tmp_journal, "GET", "/v1/workflow-count"))[1] == {"count": 1}
        connection = next(one for one in runtime._door._http.connections if one._current_request is not None)
        assert connection.transport.get_write_buffer_size() < 4 << 20  # what is not read is not made either
        writer.close()


async def test_a_waiting_call_ends_when_its_client_goes_away(tmp_journal):
    async with hosted(tmp_journal) as runtime:
        await runtime.spawn(Waits, id="w")
        actor = runtime._shard.find("w")
        call = asyncio.create_task(ask(tmp_journal, "GET", "/v1/workflows/w/result"))
        await until(lambda: actor.result_waiters)
        call.cancel()
        await until(lambda: not actor.result_waiters)


async def test_leaving_answers_those_who_wait(tmp_journal):
    runtime = hosted(tmp_journal)
    async with runtime:
        await runtime.spawn(Waits, id="w")
        call = asyncio.create_task(refused(tmp_journal, "GET", "/v1/workflows/w/result"))
        await until(lambda: runtime._shard.find("w").result_waiters)
    status, kind, _text = await call
    assert (status, kind) == (503, "RuntimeClosedError")


async def test_leaving_does_not_wait_for_a_connection_that_says_nothing(tmp_journal):
    async with hosted(tmp_journal) as runtime:
        await ask(tmp_journal, "GET", "/v1")
        reader, writer = await asyncio.open_unix_connection(tmp_journal / door.SOCKET_FILE)
        await until(lambda: runtime._door._http.connections)
        writer.write(b"POST /v1/workflows HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        await writer.drain()
    assert b"RuntimeClosedError" not in await reader.read()  # it was not even a call
    writer.close()


async def test_leaving_at_once_after_the_first_client_is_orderly(tmp_journal):
    async with hosted(tmp_journal) as runtime:
        _reader, writer = await asyncio.open_unix_connection(tmp_journal / door.SOCKET_FILE)
        await until(lambda: runtime._door._serving is not None)
    writer.close()
    assert not Path(tmp_journal, door.SOCKET_FILE).exists()
