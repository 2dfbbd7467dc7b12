"""What leaves the journal in a turn is refused at the lowest common call, whatever library it comes through (R24).

I01 - I04. The strict guard changes functions of the standard library, so its tests run in a process of their own.
"""

import asyncio
import gc
import io
import json
import logging
import logging.handlers
import os
import pathlib
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import urllib.request
import uuid
import weakref
import zoneinfo
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum

import pydantic
import pytest
from support.hosting import gate, hosted, settled

from everact import activity, workflow
from everact.exceptions import ForbiddenInWorkflowError, QueryFailedError, UpdateRejectedError
from everact.journal.memory_store import MemoryJournal

HERE = __file__


def runner(function, **options):
    """A workflow whose run calls a function that the static check does not see."""

    @workflow.defn(name="Runner", **options)
    class Runner:
        @workflow.run
        async def run(self) -> str:
            result = function()
            if asyncio.iscoroutine(result):
                result = await result
            return str(result)

        @workflow.query
        def look(self) -> str:
            return str(function())

    return Runner


async def refused(function, **options):
    """Run it; return the run's failure as text."""
    async with hosted(MemoryJournal(), runner(function), **options) as runtime:
        handle = await runtime.spawn("Runner")
        with pytest.raises(Exception, match="ForbiddenInWorkflowError"):
            await handle.result()
        return (await handle.describe()).failure


async def result_of(function, **options):
    async with hosted(MemoryJournal(), runner(function), **options) as runtime:
        return await runtime.execute("Runner")


def read_all(file):
    with file:
        return file.read()


def with_sqlite():
    sqlite3.connect(":memory:")


def with_urllib():
    urllib.request.urlopen("http://127.0.0.1:1")


def with_a_path():
    return pathlib.Path(HERE).read_text()


def with_an_alias(opener=open):
    return opener(HERE)


def in_a_comprehension():
    return [io.open(HERE) for _ in range(1)]


def caught_and_raised_again():
    try:
        return open(HERE)
    except OSError:
        return "no such file"


ROUTES = {
    with_a_path: ("open(", "do file work in an activity, and call workflow.execute_activity()"),
    with_an_alias: ("open(", "do file work in an activity"),
    in_a_comprehension: ("open(", "do file work in an activity"),
    caught_and_raised_again: ("open(", "do file work in an activity"),
    lambda: os.open(HERE, os.O_RDONLY): ("open(", "do file work in an activity"),
    lambda: os.listdir("."): ("os.listdir(", "do file work in an activity"),
    lambda: shutil.copy(HERE, "nowhere/x"): ("shutil.copyfile(", "do file work in an activity"),
    lambda: tempfile.mkdtemp(): ("tempfile.mkdtemp(", "do file work in an activity"),
    with_sqlite: ("sqlite3.connect(", "do file work in an activity"),
    lambda: socket.socket(): ("socket", "do network work in an activity"),
    lambda: socket.getaddrinfo("localhost", 1): ("socket.getaddrinfo(", "do network work in an activity"),
    lambda: socket.gethostname(): ("socket.gethostname", "as an argument of the workflow"),
    with_urllib: ("urllib.Request(", "do network work in an activity"),
    lambda: subprocess.run(["true"]): ("subprocess.Popen(", "start programs and processes in an activity"),
    lambda: os.system("true"): ("os.system", "start programs and processes in an activity"),
    lambda: os.fork(): ("os.fork", "start programs and processes in an activity"),
    lambda: os.kill(os.getpid(), 0): ("os.kill", "start programs and processes in an activity"),
    lambda: os.environ.__setitem__("EVERACT", "1"): ("os.putenv", "as an argument of the workflow"),
    lambda: input(): ("input", "let a signal or an update bring the answer"),
}
if sys.version_info >= (3, 12):
    ROUTES[lambda: threading.Thread(target=print).start()] = ("starting a thread", "a plain 'def' activity")
if sys.version_info >= (3, 13):
    ROUTES[lambda: time.sleep(0)] = ("time.sleep", "await workflow.sleep()")


@pytest.mark.parametrize("number", range(len(ROUTES)))
async def test_every_route_to_the_world_ends_at_a_refusal_with_place_and_replacement(number):
    """I04"""
    function, (call, advice) = list(ROUTES.items())[number]
    failure = await refused(function)
    line = function.__code__.co_firstlineno
    assert f"ForbiddenInWorkflowError: {call}" in failure
    place = failure.partition(f"(at {HERE}:")[2].partition(")")[0]
    assert line <= int(place) <= line + 5
    assert f") is not available in workflow code: {advice}" in failure or advice in failure


async def test_activities_and_the_program_itself_are_free():
    @activity.defn
    async def read() -> int:
        return len(pathlib.Path(HERE).read_text())

    @activity.defn
    def read_in_a_thread() -> int:
        return len(pathlib.Path(HERE).read_text())

    @workflow.defn
    class Reads:
        @workflow.run
        async def run(self) -> bool:
            return await read() == await workflow.execute_activity(read_in_a_thread)

    async with hosted(MemoryJournal(), Reads, activities=[read, read_in_a_thread]) as runtime:
        assert await runtime.execute(Reads)
        assert pathlib.Path(HERE).exists()
        assert open(HERE).close() is None


async def test_queries_validators_conditions_handlers_and_init_are_guarded():
    journal = MemoryJournal()
    look = lambda: open(HERE)  # noqa: E731

    @workflow.defn
    class Reads:
        @workflow.run
        async def run(self, where: str) -> None:
            await workflow.wait_condition(look if where == "condition" else lambda: False)

        @workflow.query
        def query(self) -> str:
            return look().read()

        @workflow.update
        def change(self) -> None:
            pass

        @change.validator
        def check(self) -> None:
            look()

        @workflow.signal
        def hear(self) -> None:
            look()

    @workflow.defn
    class Begins:
        def __init__(self) -> None:
            look()

        @workflow.run
        async def run(self) -> None:
            pass

    async with hosted(journal, Reads, Begins) as runtime:
        handle = await runtime.spawn(Reads, "nowhere")
        with pytest.raises(QueryFailedError, match=r"ForbiddenInWorkflowError: open\("):
            await handle.query(Reads.query)
        with pytest.raises(UpdateRejectedError, match=r"ForbiddenInWorkflowError: open\("):
            await handle.execute_update(Reads.change)
        await handle.signal(Reads.hear)
        await settled(runtime)
        (letter,) = (await handle.describe()).dead_letters
        assert "ForbiddenInWorkflowError" in str(letter)
        for cls, args in ((Reads, ["condition"]), (Begins, [])):
            stalled = await runtime.spawn(cls, *args)
            with pytest.raises(Exception, match=r"ForbiddenInWorkflowError: open\("):
                await stalled.result()


async def test_a_replay_is_guarded_as_the_first_time():
    journal, allowed = MemoryJournal(), gate()

    @workflow.defn
    class Waits:
        @workflow.run
        async def run(self) -> str:
            if not free:
                read_all(open(HERE))
            return await workflow.execute_activity(allowed.fn, "x")

    free = True
    with pytest.warns(match="open"):
        runtime = hosted(journal, Waits, activities=[allowed.fn])
    async with runtime:
        await runtime.spawn(Waits, id="a")
        await settled(runtime)
    free = False
    allowed.open.set()
    async with hosted(journal, Waits, activities=[allowed.fn], guard="off") as runtime:
        assert await runtime.ref("a").result() == "through"


async def test_the_comment_lets_one_line_through():
    def one_line():
        return len(read_all(open(HERE)))  # everact: allow

    def through_a_library():
        return len(pathlib.Path(HERE).read_text())  # everact: allow

    def several_lines():
        # fmt: off
        return len(pathlib.Path(
            HERE,
        ).read_text())  # everact: allow
        # fmt: on

    def above():
        return another()  # everact: allow, it reads a file of our own

    def another():
        return len(read_all(open(HERE)))

    for function in (one_line, through_a_library, several_lines, above):
        assert int(await result_of(function)) > 0
    assert f":{another.__code__.co_firstlineno + 1})" in await refused(another)


async def test_a_runtime_without_guards_lets_all_through():
    assert int(await result_of(lambda: len(read_all(open(HERE))), guard="off")) > 0


async def test_a_late_import_is_no_file_access(tmp_path, monkeypatch):
    """I03: once in a process, whatever the module does while it is made."""
    (tmp_path / "late_module").mkdir()
    (tmp_path / "late_module" / "__init__.py").write_text(
        "import os, pathlib, socket\nfrom . import deep\nlines = pathlib.Path(__file__).read_text()\n"
        "files = os.listdir('.')\n"
        "name = socket.gethostname()\n"
    )
    (tmp_path / "late_module" / "deep.py").write_text("import builtins\nbuiltins.everact_late += 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    __builtins__["everact_late"] = 0

    def imports():
        import late_module

        return len(late_module.lines)

    try:
        async with hosted(MemoryJournal(), runner(imports)) as runtime:
            results = {await runtime.execute("Runner") for _ in range(200)}
        assert len(results) == 1 and int(results.pop()) > 10
        assert __builtins__["everact_late"] == 1
    finally:
        del __builtins__["everact_late"]
        for name in ("late_module", "late_module.deep"):
            sys.modules.pop(name, None)


def test_an_import_below_the_turn_lets_nothing_through(tmp_path, monkeypatch):
    """A program that runs its loop while a module is imported: its workflows are guarded all the same."""
    (tmp_path / "outer_program.py").write_text("import builtins\nfailure = builtins.everact_program()\n")
    monkeypatch.setattr("builtins.everact_program", lambda: asyncio.run(refused(with_a_path)), raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    import outer_program

    del sys.modules["outer_program"]
    assert "ForbiddenInWorkflowError: open(" in outer_program.failure


async def test_what_the_interpreter_reads_for_itself_is_no_file_access():
    """Traces, warnings, time zones, log handlers, finalizers."""

    def trace():
        import linecache
        import traceback

        linecache.clearcache()
        try:
            raise KeyError("x")
        except KeyError:
            return 'raise KeyError("x")' in traceback.format_exc()

    assert await result_of(trace) == "True"
    zoneinfo.ZoneInfo.clear_cache()
    assert (
        await result_of(lambda: datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")).utcoffset())
        == "1:00:00"
    )

    def finalizers():
        folder = tempfile.TemporaryDirectory()  # everact: allow
        folder._finalizer.detach()
        weakref.finalize(folder, shutil.rmtree, folder.name)
        path = folder.name
        del folder
        gc.collect()
        return os.path.exists(path)

    assert await result_of(finalizers) == "False"

    class Reads:
        def __del__(self):
            read.append(pathlib.Path(HERE).read_text())

    read = []
    await result_of(lambda: Reads() and None)
    assert len(read) == 1


async def test_what_is_installed_may_be_read_and_not_be_written():
    """Libraries load translations, certificates and tables when they first need them."""
    for path in (json.__file__, pydantic.__file__):
        assert int(await result_of(lambda path=path: len(pathlib.Path(path).read_text()))) > 0
        assert await result_of(lambda path=path: "__init__.py" in os.listdir(os.path.dirname(path))) == "True"
        assert await result_of(lambda path=path: len(os.listdir(pathlib.Path(path).parent)) > 1) == "True"
        for mode in ("a", "r+"):
            assert "open(" in await refused(lambda path=path, mode=mode: open(path, mode))
        assert "os.remove(" in await refused(lambda path=path: os.remove(path + ".nowhere"))


async def test_records_of_other_loggers_reach_their_handlers(tmp_path):
    """A handler's files and sockets are the program's, not the workflow's."""
    handler = logging.handlers.RotatingFileHandler(tmp_path / "log", maxBytes=1, backupCount=2, delay=True)
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    try:
        await result_of(lambda: [logger.warning("line %d", n) for n in range(3)])
    finally:
        logger.removeHandler(handler)
        handler.close()
    assert (tmp_path / "log").read_text() == "line 2\n"
    assert (tmp_path / "log.1").read_text() == "line 1\n"


async def test_records_of_workflow_code_leave_the_turn_before_they_reach_handlers(tmp_path):
    """R24"""
    seen = []

    class Handler(logging.Handler):
        def emit(self, record):
            seen.append((workflow.in_workflow(), record.getMessage()))
            pathlib.Path(HERE).read_text()

    handler = Handler()
    workflow.logger.addHandler(handler)
    try:
        await result_of(lambda: workflow.logger.warning("said"))
    finally:
        workflow.logger.removeHandler(handler)
    assert seen == [(False, "said")]


class Colour(Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    at: datetime
    day: date
    id: uuid.UUID
    price: Decimal
    colour: Colour
    either: int | str


@dataclass
class Made:
    model: Model
    kinds: list[str]


async def test_classes_of_the_standard_library_are_the_same_inside_and_outside():
    """I02"""

    def make():
        model = Model(
            at="2026-01-02T03:04:05",
            day="2026-01-02",
            id=str(uuid.UUID(int=7)),
            price="1.50",
            colour="red",
            either="x",
        )
        assert isinstance(model.at, datetime) and type(model.day) is date
        assert type(model.id) is uuid.UUID and type(model.price) is Decimal
        assert model.colour is Colour.RED
        return (
            model.model_dump_json(),
            datetime is type(model.at),
            [id(c) for c in (datetime, date, uuid.UUID, Decimal)],
        )

    assert await result_of(make) == str(make())


async def test_two_runtimes_of_one_process_keep_their_own_guards():
    async with hosted(MemoryJournal(), runner(with_a_path), guard="off") as free:
        async with hosted(MemoryJournal(), runner(with_a_path)) as guarded:
            assert await free.execute("Runner")
            with pytest.raises(Exception, match="ForbiddenInWorkflowError"):
                await guarded.execute("Runner")


async def test_code_that_is_dropped_does_not_touch_the_world_either():
    """B10"""
    tried = []

    async def waits():
        try:
            await workflow.sleep(60)
        finally:
            try:
                open(HERE)
            except BaseException as error:
                tried.append(type(error).__name__)

    async with hosted(MemoryJournal(), runner(waits)) as runtime:
        handle = await runtime.spawn("Runner")
        await settled(runtime)
        runtime._shard.find(handle.workflow_id).drop_instance()
    assert tried == ["RunDiscarded"]


def test_the_error_says_it_all():
    error = ForbiddenInWorkflowError("open('x') (at flow.py:7)", "do file work in an activity")
    assert (
        str(error)
        == "open('x') (at flow.py:7) is not available in workflow code: do file work in an activity"
    )


# --- strict: in a process of its own

PROGRAM = """
import asyncio, json, sys, os
sys.path[:0] = {path!r}
import datetime, logging, random, secrets, threading, time, uuid
from time import monotonic as early
from everact import Runtime, workflow
from everact.journal.memory_store import MemoryJournal, MemoryStore

CALLS = {{
    "time.time": lambda: time.time(),
    "time.time_ns": lambda: time.time_ns(),
    "time.monotonic": lambda: time.monotonic(),
    "time.perf_counter": lambda: time.perf_counter(),
    "random.random": lambda: random.random(),
    "random.shuffle": lambda: random.shuffle([1]),
    "secrets.token_hex": lambda: secrets.token_hex(),
    "os.urandom": lambda: os.urandom(1),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "uuid.uuid1": lambda: uuid.uuid1(),
    "time.sleep": lambda: time.sleep(0),
    "threading.Thread.start": lambda: threading.Thread(target=print).start(),
    "os.environ": lambda: os.getenv("HOME"),
    "os.environ ": lambda: os.environ["HOME"],
    "os.environ  ": lambda: os.environ.get("HOME"),
    "open": lambda: open(__file__),
    "allowed": lambda: bool(time.time()),  # everact: allow
    "logging": lambda: logging.getLogger("x").warning("said"),
    "imported": lambda: __import__("late").now > 0,
    "fine": lambda: [random.Random(1).random(), workflow.uuid4().version, workflow.now().year > 0],
    "datetime": lambda: datetime.datetime.now().year > 0,
    "captured before": lambda: early() > 0,
}}

@workflow.defn
class Calls:
    @workflow.run
    async def run(self, name: str) -> str:
        return str(CALLS[name]())

async def main(guard):
    got = {{}}
    logging.disable(logging.ERROR)
    async with Runtime(MemoryStore(MemoryJournal()), workflows=[Calls], guard=guard) as runtime:
        for name in CALLS:
            try:
                got[name] = await runtime.execute(Calls, name)
            except Exception as error:
                got[name] = str(error.__cause__ or error)
    for name in CALLS:
        if name not in ("fine", "open", "threading.Thread.start", "imported"):
            CALLS[name]()  # outside
    return got

for _ in range(3):
    Runtime("nowhere", guard="warn")
    Runtime("nowhere", guard="off")
assert not [f for f in (time.time, random.random, os.urandom, uuid.uuid4) if hasattr(f, "__wrapped__")]
print(json.dumps([asyncio.run(main("strict")), asyncio.run(main("warn")), time.time.__name__, time.time.__module__]))
assert not hasattr(time.time.__wrapped__, "__wrapped__")
"""


def test_the_strict_guard_refuses_what_the_interpreter_does_not_report(tmp_path):
    (tmp_path / "late.py").write_text(
        "import time, os, random\nnow = time.time()\nhome = os.environ.get('HOME')\n"
    )
    root = pathlib.Path(HERE).parents[2]
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM).format(path=[str(root), str(tmp_path)]))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=50, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    strict, warn, name, module = json.loads(done.stdout)
    advice = {
        "time.sleep": "await workflow.sleep()",
        "time": "use workflow.now() or workflow.time()",
        "random": "use workflow.random()",
        "secrets": "use workflow.random()",
        "uuid": "use workflow.uuid4()",
        "threading": "a plain 'def' activity",
        "os.urandom": "use workflow.random()",
        "os.environ": "pass the value as an argument of the workflow",
        "open": "do file work in an activity",
    }
    free = {"allowed", "logging", "imported", "fine", "datetime", "captured before"}
    for call, got in strict.items():
        if call in free:
            assert got in ("True", "None") or call == "fine", (call, got)
            continue
        expected = advice.get(call.strip()) or advice[call.partition(".")[0]]
        assert f"ForbiddenInWorkflowError: {call.strip()}" in got and expected in got, (call, got)
        assert str(program) in got
    reported = {"open"}
    if sys.version_info >= (3, 12):
        reported.add("threading.Thread.start")
    if sys.version_info >= (3, 13):
        reported.add("time.sleep")
    assert {call for call, got in warn.items() if "Forbidden" in got} == reported
    assert (name, module) == ("time", "time")


async def test_what_is_recorded_once_may_look_at_anything(tmp_path):
    path = tmp_path / "text"
    path.write_text("read")

    def look():
        return [path.read_text(), os.getenv("HOME", ""), len(os.urandom(4))]

    @workflow.defn
    class Looks:
        @workflow.run
        async def run(self) -> list:
            return workflow.side_effect(look)

    async with hosted(MemoryJournal(), Looks, guard="strict") as runtime:
        assert (await runtime.execute(Looks, id="a"))[::2] == ["read", 4]
