"""Anything at all at the door: an answer in words, never a trace, and the program goes on."""

import contextlib
import gzip
import json
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.door_program import Program
from support.hosting import until

from everact import Client, Runtime
from everact.cluster import calls, door, unix_server
from everact.cluster.api import ROUTES

pytestmark = pytest.mark.slow

#: What a call may be answered with; 500 is a fault of ours.
STATUSES = {200, 201, 400, 404, 405, 408, 409, 411, 413, 422, 429, 501, 503}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "journal"
    with Program(path) as running:
        running.path = path
        call(path, "POST", "/v1/workflows", b'{"workflow": "Waits", "options": {"id": "w"}}')
        call(path, "POST", "/v1/workflows", b'{"workflow": "Asks", "options": {"id": "a"}}')
        yield running


def connected(path):
    found = socket.socket(socket.AF_UNIX)
    found.connect(str(path / door.SOCKET_FILE))  # waits while the queue is full
    found.settimeout(20)
    return found


def received(connection):
    """All until the other side has no more to say."""
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(1 << 16):
            data += chunk
    return bytes(data)


def call(path, method, url, body=b"", *headers):
    """One call; returns the status and the answer."""
    head = "\r\n".join(
        [
            f"{method} {url} HTTP/1.1",
            "Host: x",
            "Connection: close",
            f"Content-Length: {len(body)}",
            *headers,
        ]
    )
    with connected(path) as connection:
        with contextlib.suppress(BrokenPipeError):  # a body that is too large is not read to its end
            connection.sendall(head.encode() + b"\r\n\r\n" + body)
        answer = received(connection)
    first, _, rest = answer.partition(b"\r\n\r\n")
    if b"chunked" in first:
        rest = b"".join(part.partition(b"\r\n")[2] for part in rest.split(b"\r\n", 0))
    return int(first.split()[1]), rest


def is_alive(program):
    assert call(program.path, "GET", "/v1")[0] == 200
    assert program.process.poll() is None


def memory(program):
    """Bytes that the program holds."""
    for line in Path(f"/proc/{program.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError


def check(status, answer):
    """An answer is one of ours, and shows nothing of the program's inside."""
    assert status in STATUSES, answer
    assert b"Traceback" not in answer
    assert b'File "' not in answer
    if status >= 400 and answer.startswith(b"{"):
        error = json.loads(answer)["error"]
        assert error["type"]
        assert error["message"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
#: Names that mean something to the API, so that what is behind them is reached.
FIELDS = st.sampled_from(
    [
        "workflow", "args", "options", "request_id", "timeout", "wait", "wait_for_stage", "reason", "number", "headers",
        "task_token", "workflow_id", "command", "run_id", "result", "failure", "details", "repeated", "id", "memo",
        "if_running", "type", "message", "kind", "cause", "group", "encoding", "json", "base64", "$bytes", "$datetime",
    ]
)  # fmt: skip
WORDS = st.sampled_from(
    ["Waits", "Asks", "Free", "w", "a", "hear", "add", "until", "words", "accepted", "attach", "x"]
)
MEANT = st.recursive(
    WORDS | st.integers(-2, 5) | st.none() | st.booleans() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=16,
)
BODIES = (
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(FIELDS, MEANT, max_size=5).map(lambda value: json.dumps(value).encode())
)
#: Those that would wait for long, or end what the others need.
ROUTED = [
    route for route in ROUTES if not route.path.endswith(("/result", "/terminate", "/cancel", "/pause"))
]


@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_random_bodies(program, data):
    route = data.draw(st.sampled_from(ROUTED))
    url = route.path.replace("{id}", data.draw(st.sampled_from(["w", "a", "none", "%00", "%ff"])))
    url = url.replace("{name}", data.draw(st.sampled_from(["hear", "words", "add", "nope", "%20"])))
    check(*call(program.path, route.method, url, data.draw(BODIES)))
    is_alive(program)


@given(failure=st.dictionaries(FIELDS, MEANT, max_size=8) | MEANT)
def test_random_failures_of_attempts(program, failure):
    body = {"workflow_id": "w", "command": 1, "failure": failure}
    check(*call(program.path, "POST", "/v1/activities/fail", json.dumps(body).encode()))
    is_alive(program)


@given(
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "get", "X"]),
    st.lists(st.text("abwv1/%?&=.é\0 \\", max_size=12), max_size=6).map("/".join),
)
def test_random_paths(program, method, path):
    from urllib.parse import quote

    url = "/" + quote(path, safe="/%?&=.")
    if not url.endswith(("/result", "/cancel", "/terminate", "/pause")):
        check(*call(program.path, method, url))
    is_alive(program)


@given(st.binary(max_size=400), st.booleans())
def test_random_bytes_and_half_closed_connections(program, data, begins_well):
    head = b"POST /v1/workflows HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" if begins_well else b""
    with connected(program.path) as connection:
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(head + data)
            connection.shutdown(socket.SHUT_WR)
        answer = received(connection)
    assert b"Traceback" not in answer
    is_alive(program)


def test_deep_and_odd_numbers(program):
    for body in (
        b'{"workflow": "Free", "args": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
        b'{"workflow": "Free", "args": [' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"]}",
        b'{"workflow": "Free", "args": [' + b"9" * 10_000 + b"]}",
        b'{"workflow": "Free", "args": [1e999, -0.0, NaN]}',
        b'{"workflow": "Free", "args": ["\\ud800"]}',
        b'{"workflow": "Free", "args": ["\xff"]}',
        b'{"workflow": "Free", "args": [{"$bytes": 7}, {"$datetime": "x"}, {"$": {}}]}',
        b'{"workflow": "Free", "options": {"id": "\\ud800"}}',
        b'{"workflow": "Free", "options": {"memo": {"a": {"$datetime": 1}}}}',
        b'{"workflow": "\\u0000"}',
    ):
        check(*call(program.path, "POST", "/v1/workflows", body))
        is_alive(program)


def test_huge_bodies_take_no_lasting_memory(program):
    is_alive(program)
    huge = b'{"workflow": "Free", "args": ["' + b"x" * (70 << 20) + b'"]}'
    before = memory(program)
    for _ in range(3):
        status, answer = call(program.path, "POST", "/v1/workflows", huge)
        assert status == 413
        assert b"may have up to 67,108,864 bytes" in answer
    assert memory(program) - before < 160 << 20


def test_a_compressed_body_does_not_become_a_huge_one(program):
    body = gzip.compress(b" " * (60 << 20))
    before = memory(program)
    status, answer = call(program.path, "POST", "/v1/workflows", body, "Content-Encoding: gzip")
    assert status == 400
    assert b"is no JSON" in answer
    assert memory(program) - before < 30 << 20


def test_many_slow_clients_hold_nobody(program):
    before = memory(program)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connected(program.path)) for _ in range(400)]
        for number, connection in enumerate(slow):
            begun = b"POST /v1/workflows HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
            connection.sendall(begun[: number % len(begun)])
        for _ in range(20):
            is_alive(program)
        assert memory(program) - before < 80 << 20
    while len(os.listdir(f"/proc/{program.process.pid}/fd")) > 100:
        is_alive(program)  # their files are given back


def test_a_client_that_resets_its_connection_is_no_line_in_the_log(program):
    for _ in range(20):
        connection = connected(program.path)
        connection.sendall(
            b"POST /v1/workflows/w/updates/until HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n"
        )
        connection.sendall(b'{"args": ["never"]} ')
        connection.close()
    is_alive(program)


# --- limits of the server


async def test_connections_beyond_the_spare_ones_are_cut(tmp_journal, monkeypatch):
    import asyncio

    monkeypatch.setattr(door, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(unix_server, "SPARE", 3)
    async with Runtime(tmp_journal) as runtime, await Client.connect(f"unix:{tmp_journal}") as client:
        await client.count_workflows()
        others = [await asyncio.open_unix_connection(tmp_journal / door.SOCKET_FILE) for _ in range(10)]
        served = runtime._door._http
        await until(lambda: len(served.connections) <= 5)
        cut = [reader for reader, _writer in others if reader.at_eof()]
        await until(lambda: sum(reader.at_eof() for reader, _writer in others) == 6)
        assert len(cut) <= 6
        for _reader, writer in others:
            writer.close()
        await until(lambda: len(served.connections) <= 1)
        assert await client.count_workflows() == 0


async def test_a_body_that_does_not_arrive_is_not_waited_for(tmp_journal, monkeypatch):
    import asyncio

    monkeypatch.setattr(calls, "BODY_TIME", 0.05)
    async with Runtime(tmp_journal):
        reader, writer = await asyncio.open_unix_connection(tmp_journal / door.SOCKET_FILE)
        writer.write(b"POST /v1/workflows HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        assert b"408" in await reader.readline()
        assert b"the body of the call did not arrive within 0.05 s" in await reader.readuntil(b"}}")
        writer.close()


async def test_many_large_bodies_at_once_are_put_off(tmp_journal, monkeypatch):
    import asyncio

    monkeypatch.setattr(calls, "BODIES_LIMIT", 3000)
    async with Runtime(tmp_journal, workflows=[]), await Client.connect(f"unix:{tmp_journal}") as client:
        held = []
        for _ in range(2):
            reader, writer = await asyncio.open_unix_connection(tmp_journal / door.SOCKET_FILE)
            writer.write(
                b"POST /v1/workflows HTTP/1.1\r\nHost: x\r\nContent-Length: 1900\r\n\r\n" + b" " * 1400
            )
            held.append((reader, writer))
        reader, writer = await asyncio.open_unix_connection(tmp_journal / door.SOCKET_FILE)
        writer.write(b"POST /v1/workflows HTTP/1.1\r\nHost: x\r\nContent-Length: 400\r\n\r\n" + b" " * 400)
        assert b"503" in await reader.readline()
        assert b"this program has very large calls in hand: try again later" in await reader.readuntil(b"}}")
        for _reader, other in [*held, (reader, writer)]:
            other.close()
        assert await client.count_workflows() == 0
