"""The verbs of a runtime from another process: the same handles, values and errors, with the same text."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.crashes import load_program
from support.door_program import Program
from support.door_workflows import WORKFLOWS, Free, Order, Waits
from support.hosting import until

from everact import Client, Runtime, exceptions, workflow
from everact.actors import messenger
from everact.actors.call_codec import CallCodec
from everact.cluster import connection as connections
from everact.cluster import unix_server, wire
from everact.cluster.door import SOCKET_FILE
from everact.exceptions import (
    AddressError,
    CallRefusedError,
    CallTimeoutError,
    ForbiddenInWorkflowError,
    PayloadEncodeError,
    RegistrationError,
    ResultTimeoutError,
    RuntimeUnreachableError,
    UpdateFailedError,
    WorkflowClosedError,
    WorkflowFailedError,
    WorkflowTerminatedError,
)
from everact.journal.payloads import Payload, PayloadConverter
from everact.payloads import RawValue


@pytest.fixture
async def both(tmp_journal):
    """A runtime, and a client of it."""
    async with (
        Runtime(tmp_journal, workflows=WORKFLOWS, name="shop", grace=0.0) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        yield runtime, client


def shown(error):
    """All of an error that its catcher can see, its causes included; what is no failure becomes one on the way."""
    cause = error.__cause__
    return type(error), str(error), error.args, cause and (str(getattr(cause, "message", cause)))


async def outcome(call):
    try:
        return await call
    except Exception as error:
        return shown(error)


# --- the same as in the process


async def test_a_run_has_the_same_life_from_both_sides(both):
    runtime, client = both
    handle = await client.spawn(Waits, Order("tea", 2), id="../a/b ü%2F\n")
    here = runtime.ref(handle.address, Waits)
    assert (client.name, handle.address, repr(handle)) == ("shop", here.address, repr(here))
    await handle.signal(Waits.hear, "one")
    await handle.tell("hear", "two")
    assert await handle.query(Waits.words) == await handle.query("words") == ["one", "two"]
    assert await handle.query(Waits.raw) == await here.query("raw") == b"\0raw"
    assert await handle.execute_update(Waits.add, Order("three")) == 3
    assert (
        await client.ref(handle.address).ask("add", {"item": "four"}) == 4
    )  # converted by its hint over there
    assert await handle.describe() == await here.describe()
    waiting = asyncio.create_task(handle.result())
    until_five = asyncio.create_task(handle.execute_update(Waits.until, "five"))
    await until(lambda: runtime._shard.find(here.workflow_id).update_waiters)
    await here.signal(Waits.hear, "five")
    assert await until_five == 4
    await here.signal(Waits.finish, "end")
    assert await waiting == Order("one,two,three,four,five,end", 2)
    assert await client.ref(handle.workflow_id).result() == {
        "item": "one,two,three,four,five,end",
        "count": 2,
    }
    history, same = await handle.fetch_history(), await here.fetch_history()
    assert history.records == same.records
    assert repr(history) == repr(same)
    assert await client.list_workflows() == await runtime.list_workflows()
    assert await client.count_workflows(workflow_type="Waits", status="completed") == 1
    assert await client.execute("Free", 1) == [1]


async def test_values_without_hints_come_back_as_they_were(both):
    _runtime, client = both
    values = (
        None, b"\0", (1, 2), {1, 2}, {"$a": 1}, {"$bytes": "x"}, 2**80, float("inf"), "é", datetime.now(UTC), [[]],
    )  # fmt: skip
    assert await client.execute(Free, *values) == list(values)


async def listed(side, **asked):
    return await side.list_workflows(**asked)


CALLS = {
    "none": lambda side: side.ref("none").describe(),
    "run": lambda side: side.ref("everact://shop/w/none").fetch_history(),
    "kind": lambda side: side.ref("w", Free).result(),
    "taken": lambda side: side.spawn(Waits, id="w"),
    "word": lambda side: side.spawn(Waits, id="w", if_running="perhaps"),
    "option": lambda side: side.spawn(Waits, colour="red"),
    "arguments as a list": lambda side: side.spawn(Waits, args=[Order("a")]),
    "no number": lambda side: side.spawn(Waits, Order("a"), run_timeout=float("nan")),
    "no end": lambda side: side.spawn(Waits, Order("a"), start_delay=float("inf")),
    "no policy": lambda side: side.spawn(Waits, Order("a"), retry_policy={"maximum_attempts": 3}),
    "empty": lambda side: side.spawn(Waits, id=""),
    "request": lambda side: side.spawn(Waits, request_id="r"),
    "type": lambda side: side.spawn("Nope"),
    "number": lambda side: side.spawn(Waits, Order("a"), 2),
    "hint": lambda side: side.spawn(Waits, {"item": 1}),
    "signal": lambda side: side.ref("w", Waits).signal("heat", "a"),
    "no signal": lambda side: side.ref("w", Waits).signal(Waits.words),
    "argument": lambda side: side.ref("w", Waits).signal(Waits.hear, 1),
    "argument by name": lambda side: side.ref("w").signal("hear", 1),
    "arguments": lambda side: side.ref("w").signal("hear"),
    "breaks": lambda side: side.ref("w").query("breaks"),
    "rejected": lambda side: side.ref("w", Waits).execute_update("add", Order("a", -1)),
    "failed": lambda side: side.ref("w", Waits).execute_update(Waits.add, Order("")),
    "time": lambda side: side.ref("w").result(timeout=0.01),
    "stall": lambda side: side.ref("w").result(on_stall="perhaps"),
    "late": lambda side: side.ref("closed").signal("hear", "a"),
    "cancel": lambda side: side.ref("closed").cancel(),
    "reason": lambda side: side.ref("w").terminate(7),
    "terminated": lambda side: side.ref("closed").result(),
    "status": lambda side: listed(side, status="dead"),
    "limit": lambda side: listed(side, limit=0),
    "limit of text": lambda side: listed(side, limit="ten"),
    "size": lambda side: listed(side, page_size=1001),
    "no size": lambda side: listed(side, page_size=0),
    "token": lambda side: listed(side, next_page_token="AA=="),
    "token of text": lambda side: listed(side, next_page_token=7),
    "stage": lambda side: side.ref("w", Waits).start_update(Waits.add, Order("a"), wait_for_stage="perhaps"),
    "started rejected": lambda side: side.ref("w", Waits).start_update("add", Order("a", -1)),
    "started late": lambda side: side.ref("closed").start_update(Waits.add, Order("a")),
    "token of nobody": lambda side: side.activity_handle(workflow_id="w", command=1).complete(7),
    "token of nothing": lambda side: side.activity_handle(workflow_id="none", command=1).fail(ValueError("x")),
    "count": lambda side: side.count_workflows(status="dead"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
async def test_errors_are_those_of_the_runtime(both, name):
    runtime, client = both
    await runtime.spawn(Waits, id="w")
    await (await runtime.spawn(Waits, id="closed")).terminate("no stock")
    here, there = await outcome(CALLS[name](runtime)), await outcome(CALLS[name](client))
    assert isinstance(here, tuple)
    if name in (
        "breaks",
        "rejected",
        "started rejected",
    ):  # an error that is no failure comes over as one, and says its type
        assert here[:3] == there[:3]
        assert str(here[3]) in str(there[3])
    else:
        assert there == here


async def test_a_query_without_an_answer_in_time_is_a_timeout_on_both_sides(both, monkeypatch):
    async def never(_future, _seconds, _later):
        return False

    runtime, client = both
    await runtime.spawn(Waits, id="w")
    monkeypatch.setattr(messenger, "wait_within", never)
    here, there = [await outcome(side.ref("w").query("words", timeout=2)) for side in both]
    assert here == there
    assert here[:2] == (TimeoutError, "query 'words' of workflow 'w' had no answer within 2 s")


async def test_a_failure_brings_its_cause_its_type_and_its_details(both):
    _runtime, client = both
    handle = await client.spawn(Waits)
    await handle.signal(Waits.finish, "fail")
    with pytest.raises(WorkflowFailedError, match="failed: NoStock: no stock") as caught:
        await handle.result()
    cause = caught.value.__cause__
    assert (cause.type, cause.details, cause.caused_by("NoStock")) == ("NoStock", ({"item": "tea"},), True)
    assert "door_workflows.py" in cause.__notes__[0]


def test_a_handle_cannot_be_had_for_another_cluster_or_no_workflow(tmp_journal):
    client = Client("shop", None, None)
    with pytest.raises(AddressError, match="is of cluster 'other'; this is 'shop'"):
        client.ref("everact://other/w")
    with pytest.raises(RegistrationError, match="is not a workflow class"):
        client.ref("w", Order)


async def test_what_is_no_workflow_is_refused_at_the_call(both):
    _runtime, client = both

    class Base(Waits):
        pass

    for bad, says in (
        (Order, "is not a workflow class"),
        (7, "7 is neither a workflow class, nor the run method"),
    ):
        with pytest.raises(RegistrationError, match=says):
            await client.spawn(bad)
    assert (await client.spawn(Waits.run, Order("tea"), id="by-run"))._definition.name == "Waits"


async def test_a_value_without_a_stored_form_is_refused_at_the_call(both):
    _runtime, client = both
    with pytest.raises(PayloadEncodeError, match="has no stored form here"):
        await client.spawn(Free, object())
    assert await client.count_workflows() == 0


async def test_many_wait_at_once(both):
    _runtime, client = both
    handles = [await client.spawn(Waits) for _ in range(150)]
    waiting = [asyncio.create_task(handle.result()) for handle in handles]
    for handle in handles:
        await handle.signal(Waits.finish, "x")
    assert {order.item for order in await asyncio.gather(*waiting)} == {"x"}


async def test_a_crowded_program_is_asked_again(both, monkeypatch):
    runtime, client = both
    served = runtime._door._http
    first = served.requests_count
    text = "this program serves 2 connections at a time: try again later"

    async def handle(api, request, real=unix_server.Api.handle):
        return (
            unix_server.refusal(503, text) if served.requests_count < first + 3 else await real(api, request)
        )

    monkeypatch.setattr(unix_server.Api, "handle", handle)
    assert await client.count_workflows() == 0
    assert served.requests_count == first + 3
    first += 1_000_000
    client._connection._timeout = 0.1
    with pytest.raises(RuntimeUnreachableError, match="this program serves 2 connections at a time"):
        await client.count_workflows()


async def test_many_queries_take_few_connections(both):
    runtime, client = both
    handle = await client.spawn(Waits)
    await asyncio.gather(*[handle.query(Waits.words) for _ in range(200)])
    assert len(runtime._door._http.connections) <= connections.QUICK


async def test_a_result_is_waited_for_in_several_calls(both, monkeypatch):
    runtime, client = both
    monkeypatch.setattr(connections, "WAIT", 0.01)
    monkeypatch.setattr(connections, "LEAST_WAIT", 0.01)
    handle = await client.spawn(Waits, id="w")
    waiting = asyncio.create_task(client.ref("w").result())
    update = asyncio.create_task(handle.execute_update(Waits.until, "now"))
    served = runtime._door._http
    before = served.requests_count
    await until(lambda: served.requests_count > before + 10)
    await handle.signal(Waits.hear, "now")
    assert await update == 0
    assert (await handle.describe()).history_length < 10  # one update, however often it was asked for
    await handle.terminate("over")
    await runtime.spawn(Waits, id="w")
    with pytest.raises(WorkflowTerminatedError):
        await waiting  # of the run that was asked for first


async def test_runs_are_paused_resumed_released_and_redriven(both):
    runtime, client = both
    handle = await client.spawn(Waits, id="w")
    await handle.pause("a look")
    seen = await client.ref("w").describe()
    assert (seen.status, seen.pause_reason) == ("paused", "a look")
    assert [line.status for line in await client.list_workflows(status="paused")] == ["paused"]
    with pytest.raises(exceptions.ResultTimeoutError, match=r"within 0 s; it is paused \(waiting on: resume"):
        await handle.result(timeout=0)
    for verb in ("release", "redrive"):
        with pytest.raises(exceptions.EveractError) as there:
            await getattr(client.ref("w"), verb)(*([1] if verb == "redrive" else []))
        with pytest.raises(exceptions.EveractError) as here:
            await getattr(runtime.ref("w"), verb)(*([1] if verb == "redrive" else []))
        assert shown(there.value) == shown(here.value)
    await handle.resume(request_id="r")
    await runtime.ref("w").pause()
    await handle.resume(request_id="r")  # a repeat
    assert (await handle.describe()).status == "paused"
    await handle.resume()


# --- nobody listens


async def test_urls_are_checked():
    for url in ("http://x", "unix:", "orders", ""):
        with pytest.raises(ValueError, match=r"unix:DIR|must not be empty"):
            await Client.connect(url)
    with pytest.raises(TypeError, match="the url of a Client must be a str"):
        await Client.connect(7)
    with pytest.raises(ValueError, match="timeout must be between 0 and 100 years, not -1"):
        await Client.connect("unix:x", timeout=-1)


async def unreachable(path):
    with pytest.raises(RuntimeUnreachableError) as caught:
        await Client.connect(f"unix:{path}")
    text = str(caught.value)
    assert text.startswith(f"no running program answers for the journal '{path}': ")
    assert "Start the program whose Runtime opens it" in text
    return caught.value.reason


async def test_nobody_listens_is_said_with_what_was_found(tmp_journal):
    assert await unreachable(tmp_journal) == "there is no such directory"
    assert await unreachable(tmp_journal.parent / ("y" * 300)) == "it cannot be found (File name too long)"
    async with Runtime(tmp_journal):
        pass
    assert await unreachable(tmp_journal) == "there is no socket 'everact.sock' in it"
    async with Runtime(tmp_journal, door=False):
        reason = f"process {os.getpid()} has it open without a door (Runtime(door=False), or a tool)"
        assert await unreachable(tmp_journal) == reason
    with Program(tmp_journal) as program:
        program.kill()
    assert (tmp_journal / SOCKET_FILE).exists()
    assert (
        await unreachable(tmp_journal) == "nobody listens at its socket 'everact.sock' (Connection refused)"
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.slow
async def test_another_user_is_told_whose_it_is(tmp_path):
    import tempfile

    with tempfile.TemporaryDirectory(prefix="everact-door-", dir="/tmp") as place:
        path = Path(place, "journal")
        Path(place).chmod(0o755)
        async with Runtime(path, workflows=WORKFLOWS):
            path.chmod(0o755)
            code = (
                "import asyncio, os, sys\nfrom everact import Client\nfrom everact.exceptions import EveractError\n"
                "import aiohttp\nos.setgid(65534); os.setuid(65534)\n"
                "try: asyncio.run(Client.connect('unix:' + sys.argv[1]))\n"
                "except EveractError as error: print(getattr(error, 'reason', error))\n"
            )

            async def told():
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", code, str(path), stdout=subprocess.PIPE
                )
                out, _ = await process.communicate()
                return out.decode()

            assert await told() == "its socket is for user 0 only, and this is user 65534\n"
            (path / SOCKET_FILE).chmod(0o666)  # whoever gets so far is asked for his name
            assert await told() == "this program serves processes of its own user only\n"


async def test_a_client_that_was_closed_says_so(both):
    _runtime, client = both
    await client.close()
    with pytest.raises(RuntimeError, match="this Client is closed: connect another one"):
        await client.count_workflows()
    await client.close()


async def test_a_client_belongs_to_its_event_loop_and_to_no_workflow(both):
    runtime, client = both

    def elsewhere():
        async def count():
            return await client.count_workflows()

        with pytest.raises(
            RuntimeError, match="this Client belongs to another event loop: connect one in each loop"
        ):
            asyncio.run(count())

    await asyncio.to_thread(elsewhere)
    CLIENTS[:] = [client]
    runtime._registry.workflows.update({"UsesClient": UsesClient.__everact_definition__})
    says = "a Client or one of its handles"
    assert says in await runtime.execute("UsesClient", "uses")
    assert says in await runtime.execute("UsesClient", "unix:x")
    CLIENTS.clear()


CLIENTS = []


@workflow.defn
class UsesClient:
    @workflow.run
    async def run(self, way: str) -> str:
        try:
            if way == "uses":
                await CLIENTS[0].ref("w").describe()
            else:
                await Client.connect(way)
        except ForbiddenInWorkflowError as error:
            return str(error)
        return "no error"


async def test_a_program_that_does_not_answer_is_not_waited_for(tmp_path):
    async def hear(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(hear, tmp_path / SOCKET_FILE):
        connection = connections.Connection(str(tmp_path), 0.05, None)
        with pytest.raises(
            CallTimeoutError,
            match=r"did not answer GET /v1/workflows within 0.05 s. It only reads: repeat it",
        ):
            await connection.call("GET", "workflows")
        await connection.close()


async def test_what_is_no_everact_is_said(tmp_path):
    async def hear(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 418 I am a teapot\r\nContent-Length: 5\r\nConnection: close\r\n\r\nshort")
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(hear, tmp_path / SOCKET_FILE):
        with pytest.raises(CallRefusedError, match="the program answered with status 418: short"):
            await Client.connect(f"unix:{tmp_path}")


# --- the program dies and comes back


@pytest.mark.slow
async def test_calls_go_on_when_the_program_is_killed_and_started_again(tmp_journal):
    with Program(tmp_journal) as first:
        async with await Client.connect(f"unix:{tmp_journal}") as client:
            handle = await client.spawn(Waits, id="w")
            result = asyncio.create_task(handle.result())
            update = asyncio.create_task(handle.execute_update(Waits.until, "now"))
            while not (await handle.describe()).history_length > 3:
                await asyncio.sleep(0.001)
            first.kill()
            late = asyncio.create_task(handle.signal(Waits.hear, "now"))
            with Program(tmp_journal) as second:
                await late
                assert await update == 0
                assert await handle.query(Waits.words) == ["now"]
                await handle.signal(Waits.finish, "end")
                assert await result == Order("now,end", 0)
                second.leave()
            with pytest.raises(RuntimeUnreachableError):
                client._connection._timeout = 0.1
                await handle.describe()


class Cut:
    """Lets a call through and cuts its answer, as a program does that is killed in the middle."""

    def __init__(self, path):
        self.path = Path(path, SOCKET_FILE)
        self.behind = Path(path, "behind.sock")
        self.cuts = 1
        self.calls = []

    async def __aenter__(self):
        self.path.rename(self.behind)
        self.server = await asyncio.start_unix_server(self.hear, self.path)
        return self

    async def __aexit__(self, *_exc_info):
        self.server.close()
        self.path.unlink(missing_ok=True)
        self.behind.rename(self.path)

    async def hear(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(h[15:]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length:")), 0
        )
        body = await reader.readexactly(length)
        line = head.split(b"\r\n")[0]
        self.calls.append(line)
        there, back = await asyncio.open_unix_connection(self.behind)
        back.write(head.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1) + body)
        answer = await there.read()
        back.close()
        if line.startswith(b"POST") and self.cuts:
            self.cuts -= 1
        else:
            writer.write(answer)
        writer.close()


CUT = {
    "spawn": lambda client, handle: client.spawn(Waits, id="new"),
    "spawn without id": lambda client, handle: client.spawn(Waits),
    "signal": lambda client, handle: handle.signal(Waits.hear, "once"),
    "update": lambda client, handle: handle.execute_update(Waits.add, Order("once")),
    "failed update": lambda client, handle: handle.execute_update(Waits.add, Order("")),
    "cancel": lambda client, handle: client.ref("w").cancel("once"),
    "terminate": lambda client, handle: client.ref("w").terminate("once"),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
async def test_a_call_whose_answer_is_lost_is_applied_once(both, tmp_journal, name):
    runtime, client = both
    handle = await runtime.spawn(Waits, id="w")
    async with Cut(tmp_journal) as cut, await Client.connect(f"unix:{tmp_journal}") as other:
        try:
            await CUT[name](other, other.ref("w", Waits))
        except UpdateFailedError:
            assert name == "failed update"
        posts = [call for call in cut.calls if call.startswith(b"POST")]
        assert posts == [posts[0]] * 2
    kinds = [event.kind for event in await handle.fetch_history()]
    assert await runtime.count_workflows() == 2 if "spawn" in name else 1
    assert kinds.count("SignalReceived") == (name == "signal")
    assert kinds.count("UpdateReceived") == ("update" in name)
    assert kinds.count("CancelRequested") == (name == "cancel")
    assert kinds.count("WorkflowTerminated") == (name == "terminate")


async def test_a_second_terminate_that_was_not_ours_is_refused(both):
    runtime, client = both
    await runtime.spawn(Waits, id="w")
    await client.ref("w").terminate("first")
    with pytest.raises(WorkflowClosedError):
        await client.ref("w").terminate("second")


async def test_a_program_that_leaves_and_comes_back_is_waited_for(tmp_journal):
    def hosted():
        return Runtime(tmp_journal, workflows=WORKFLOWS, grace=0.0)

    async with hosted(), await Client.connect(f"unix:{tmp_journal}") as client:
        pass
    client = connections.Connection(str(tmp_journal), 20.0, None)
    async with hosted() as runtime:
        runtime._leaving = True  # as while its activities are waited for
        asking = asyncio.create_task(client.call("GET", "workflow-count"))
        await until(lambda: runtime._door._http is not None and runtime._door._http.requests_count >= 2)
        runtime._leaving = False
    async with hosted():
        assert await asking == b'{"count":0}'
    await client.close()


async def test_a_client_that_is_closed_while_it_waits_for_the_program_says_so(tmp_journal):
    async with Runtime(tmp_journal, workflows=WORKFLOWS, grace=0.0):
        client = await Client.connect(f"unix:{tmp_journal}")
        handle = await client.spawn(Waits, id="w")
        waiting = asyncio.create_task(handle.result())
        await until(lambda: client._connection._waiting == 1)
    await client.close()
    with pytest.raises(RuntimeError, match="this Client is closed"):
        await waiting


def test_every_error_of_the_package_comes_over():
    arguments = load_program(Path(__file__).parents[1] / "errors" / "test_error_classes.py").ARGUMENTS
    converter = PayloadConverter()
    for name in exceptions.__all__:
        cls = getattr(exceptions, name)
        if issubclass(cls, Warning) or name == "ReplayFailedError":
            continue  # they stay where the source, the test is
        assert wire.ERRORS[name] is cls
        if name == "FailureGroupError":
            continue  # it holds exceptions; it travels as a failure
        error = cls(*arguments.get(name, ("what went wrong",)))
        document = wire.from_json(wire.to_json(wire.error_document(error, converter)))
        again = wire.error_from(document, converter)
        assert (type(again), str(again)) == (cls, str(error))


def test_an_error_of_another_version_is_told_by_its_text():
    converter = PayloadConverter()
    for document, says in (
        ({"type": "NewError", "message": "it is new"}, "NewError: it is new"),
        ({"type": "WorkflowNotFoundError", "message": "other words", "args": ["w"]}, "other words"),
        ({"type": "ValueError"}, "unknown form"),
        ("gone", "unknown form"),
    ):
        error = wire.error_from(document, converter)
        assert isinstance(error, CallRefusedError)
        assert says in str(error)
    error = wire.error_from({"type": "ValueError", "message": "x", "failure": {"type": 7}}, converter)
    assert "its cause cannot be read" in error.__notes__[0]
    assert (
        ResultTimeoutError
        in type(wire.error_from({"type": "ResultTimeoutError", "message": "x"}, converter)).__mro__
    )


# --- what somebody has typed


MISTYPED = [
    ({"item": "tea", "cuont": 2}, "$.cuont"),
    ({"item": "tea", "count": 2, "": 1}, "$."),
]


@pytest.mark.parametrize(("order", "path"), MISTYPED)
async def test_a_start_by_name_with_a_mistyped_field_is_refused_with_its_path(both, order, path):
    runtime, client = both
    with pytest.raises(PayloadEncodeError, match="Order has no such field") as caught:
        await client.spawn("Waits", order)
    assert caught.value.path == path
    assert caught.value.where == "argument 'order' of workflow Waits"
    assert await runtime.count_workflows() == 0
    handle = await client.spawn("Waits", {"item": "tea"})
    await handle.signal("finish", "end")
    assert (await handle.result())["count"] == 1


@pytest.mark.parametrize(("order", "path"), MISTYPED)
async def test_an_update_or_a_query_by_name_with_a_mistyped_field_is_refused_with_its_path(both, order, path):
    _, client = both
    handle = await client.spawn("Waits", {"item": "tea"})
    before = (await handle.describe()).history_length
    calls = {
        "update add": (handle.execute_update("add", order), handle.start_update("add", order)),
        "query holds": (handle.query("holds", order),),
        "signal take": (handle.signal("take", order),),
    }
    for label, asked in calls.items():
        for call in asked:
            with pytest.raises(PayloadEncodeError, match="Order has no such field") as caught:
                await call
            assert caught.value.path == path
            assert caught.value.where == f"argument 'order' of {label.replace(' ', ' Waits.')}"
    assert (await handle.describe()).history_length == before, "nothing of it was written"
    assert await handle.execute_update("add", {"item": "tea"}) == 1
    await handle.signal("take", {"item": "milk", "count": 2})
    assert await handle.query("holds", {"item": "milk", "count": 2}) is True


async def test_a_dynamic_workflow_takes_what_comes(tmp_journal):
    @workflow.defn(dynamic=True)
    class Anything:
        @workflow.run
        async def run(self, name: str, args: list[RawValue]) -> Any:
            return [name, *[workflow.payload_converter().decode(arg.payload) for arg in args]]

    async with (
        Runtime(tmp_journal, workflows=[Anything], grace=0.0),
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        assert await client.execute("Whatever", {"any": 1}) == ["Whatever", {"any": 1}]


async def test_messages_with_an_object_of_a_newer_class_are_taken(both):
    _, client = both

    @dataclass
    class NewerOrder:
        item: str
        count: int = 1
        colour: str = "green"

    @workflow.defn(name="Waits")
    class Newer:
        @workflow.run
        async def run(self, order: NewerOrder | None = None) -> NewerOrder: ...

        @workflow.update
        def add(self, order: NewerOrder) -> int: ...

        @workflow.signal
        def take(self, order: NewerOrder) -> None: ...

        @workflow.query
        def holds(self, order: NewerOrder) -> bool: ...

    handle = await client.spawn(Newer)
    assert await handle.execute_update(Newer.add, NewerOrder("tea")) == 1
    assert await (await handle.start_update(Newer.add, NewerOrder("tea"))).result() == 2
    await handle.signal(Newer.take, NewerOrder("milk"))
    assert await handle.query(Newer.holds, NewerOrder("milk")) is True


async def test_a_start_with_an_object_of_a_newer_class_is_taken(both):
    """Two programs of different versions: the field that only one of them has is ignored, as in the journal."""
    _, client = both

    @dataclass
    class NewerOrder:
        item: str
        count: int = 1
        colour: str = "green"

    @workflow.defn(name="Waits")
    class Newer:
        @workflow.run
        async def run(self, order: NewerOrder | None = None) -> NewerOrder: ...

    handle = await client.spawn(Newer, NewerOrder("tea", 3))
    await handle.signal("finish", "end")
    assert (await client.ref(handle.workflow_id).result())["count"] == 3


class TestUnknownFields:
    """Of nested arguments."""

    @dataclass
    class Line:
        sku: str
        note: str | None = None

    def refuse(self, hint, given):
        def fn(value: hint) -> None: ...

        fn.__annotations__["value"] = hint
        codec, converter = CallCodec(fn, "workflow W"), PayloadConverter()
        payloads = [Payload("json", json.dumps(given).encode())]
        codec.values_of(converter, payloads)

    @pytest.mark.parametrize(
        ("hint", "given", "path"),
        [
            (list[Line], [{"sku": "a"}, {"sku": "b", "nte": "x"}], "$[1].nte"),
            (dict[str, Line], {"k": {"sku": "a", "n": 1}}, "$.k.n"),
            (Line | None, {"sku": "a", "n": 1}, "$.n"),
        ],
    )
    def test_are_found_inside(self, hint, given, path):
        with pytest.raises(PayloadEncodeError, match="has no such field") as caught:
            self.refuse(hint, given)
        assert caught.value.path == path

    @pytest.mark.parametrize(
        ("hint", "given"),
        [
            (list[Line], [{"sku": "a", "note": None}]),
            (dict[str, int], {"any": 1, "key": 2}),
            (Any, {"any": {"thing": [1, {"x": 2}]}}),
            (Line | None, None),
            (list[int], []),
            (datetime, "2026-01-01T00:00:00+00:00"),
        ],
    )
    def test_what_is_known_or_free_passes(self, hint, given):
        self.refuse(hint, given)
