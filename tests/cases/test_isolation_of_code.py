"""Chapter I: a workflow's file is a module like any other; what leaves the turn is refused where it leaves."""

import asyncio
import gc
import importlib
import multiprocessing
import os
import pathlib
import random
import secrets
import socket
import sys
import threading
import time
import urllib.request
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType

import msgspec
import pydantic
import pytest

from everact import WatchdogLimits, activity, workflow
from everact.testing import TestEnvironment

# --- imports

LIBRARY = """
import builtins, os, warnings
assert not hasattr(builtins, "{name}_was_imported"), "imported twice"
builtins.{name}_was_imported = True
HOME = os.environ.get("HOME")
warnings.filters = list(warnings.filters)
"""

WORKFLOWS = """
import contextlib, ctypes, http.server, smtplib, sqlite3, ssl, subprocess, threading, xmlrpc.server
import {name}
from everact import activity, workflow

@activity.defn
async def uses() -> bool:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("select 1")
    return {name}.HOME is not None or True

@workflow.defn
class Uses:
    @workflow.run
    async def run(self) -> bool:
        return await uses()
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "") in map(str, tmp_path.rglob("*.py")):
            del sys.modules[name]


async def test_i01_imports_for_activities_only_are_no_business_of_the_workflow(modules):
    modules("registering_library", LIBRARY.format(name="registering_library"))
    modules("my_workflows", WORKFLOWS.format(name="registering_library"))
    mine = importlib.import_module("my_workflows")
    for _ in range(3):
        async with TestEnvironment(workflows=[mine.Uses], activities=[mine.uses]) as env:
            assert await env.execute(mine.Uses) is True
            await env.restart()
            assert await env.execute(mine.Uses) is True
    assert sys.modules["my_workflows"] is mine


# --- classes


class Colour(Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    at: datetime
    day: date
    id: uuid.UUID
    price: Decimal
    colour: Colour
    either: int | str | date
    span: timedelta


@dataclass
class Record:
    at: datetime
    day: date
    id: uuid.UUID
    price: Decimal
    colour: Colour
    either: int | str
    span: timedelta


class Struct(msgspec.Struct):
    at: datetime
    day: date
    id: uuid.UUID
    price: Decimal
    colour: Colour
    either: int | str
    span: timedelta


VALUES = MappingProxyType(
    {
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "id": uuid.UUID(int=7),
        "price": Decimal("1.50"),
        "colour": Colour.RED,
        "either": "x",
        "span": timedelta(seconds=90),
    }
)
CLASSES = (datetime, date, uuid.UUID, Decimal, Colour, str, timedelta)


def classes_of(model) -> list[bool]:
    return [type(getattr(model, name)) is kind for name, kind in zip(VALUES, CLASSES, strict=True)]


@pytest.mark.parametrize("kind", [Model, Record, Struct])
async def test_i02_models_made_in_a_workflow_are_those_made_outside(kind):
    @activity.defn
    async def passes_on(model: kind) -> kind:
        assert all(classes_of(model))
        return model

    @workflow.defn
    class Makes:
        @workflow.run
        async def run(self, given: kind) -> kind:
            made = kind(**VALUES)
            assert type(made) is type(given) is kind
            assert made == given
            assert all(classes_of(made)) and all(classes_of(given))
            assert isinstance(workflow.now(), datetime) and type(workflow.uuid4()) is uuid.UUID
            return await passes_on(made)

    async with TestEnvironment(workflows=[Makes], activities=[passes_on]) as env:
        assert await env.execute(Makes, kind(**VALUES)) == kind(**VALUES)


# --- late imports


def runner(function):
    """A workflow that calls what the static check does not see."""

    @workflow.defn(name="Runner")
    class Runner:
        @workflow.run
        async def run(self) -> str:
            result = function()
            return str(await result if asyncio.iscoroutine(result) else result)

    return Runner


def late():
    import heavy_module

    return heavy_module.answer()


@pytest.mark.parametrize("style", ["plain", "slow", "nested"])
async def test_i03_what_is_imported_in_the_middle_of_a_turn_is_loaded_once(modules, style, caplog):
    """A slow load is no stuck code."""
    slow = "import time\nend = time.monotonic() + 0.4\nwhile time.monotonic() < end: pass\n"
    modules("heavy_part", "import builtins\nbuiltins.heavy_loads = getattr(builtins, 'heavy_loads', 0) + 1\n")
    modules(
        "heavy_module",
        (slow if style == "slow" else "")
        + ("" if style == "nested" else "import heavy_part\n")
        + "def answer():\n    import heavy_part\n    return 42\n",
    )
    import builtins

    cases = 1000 if style == "plain" else 20
    Runner = runner(late)
    limits = WatchdogLimits(warn_after=0.1, break_after=0.2)
    try:
        async with TestEnvironment(workflows=[Runner], watchdog=limits) as env:
            assert await env.execute("Runner") == "42"
            modules_then = len(sys.modules)
            module = weakref.ref(sys.modules["heavy_module"])
            assert {await env.execute("Runner") for _ in range(cases)} == {"42"}
            gc.collect()
            assert module() is sys.modules["heavy_module"]
            assert len(sys.modules) == modules_then
        assert builtins.heavy_loads == 1
    finally:
        del builtins.heavy_loads


# --- guards

HERE = __file__

ROUTES = {
    "socket": lambda: socket.create_connection(("127.0.0.1", 1)),
    "socket by a library": lambda: urllib.request.urlopen("http://127.0.0.1:1"),
    "socket by asyncio": lambda: asyncio.open_connection("127.0.0.1", 1),
    "names": lambda: socket.getaddrinfo("localhost", 80),
    "file": lambda: open(HERE).read(),
    "file by a path": lambda: pathlib.Path(HERE).read_bytes(),
    "file by its number": lambda: os.open(HERE, os.O_RDONLY),
    "folder": lambda: list(os.scandir(".")),
    "clock": lambda: time.time(),
    "steady clock": lambda: time.monotonic(),
    "thread by a pool": lambda: ThreadPoolExecutor(1).submit(print),
    "thread by asyncio": lambda: asyncio.to_thread(print),
    "process": lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
    "random": lambda: random.random(),
    "secrets": lambda: secrets.token_hex(),
    "uuid": lambda: uuid.uuid4(),
    "sleep": lambda: time.sleep(0.001),
    "thread": lambda: threading.Thread(target=print).start(),
}


@pytest.mark.parametrize("route", ROUTES)
async def test_i04_every_route_ends_at_an_error_with_place_and_replacement(route):
    async with TestEnvironment(workflows=[runner(ROUTES[route])]) as env:
        handle = await env.spawn("Runner")
        with pytest.raises(Exception, match="ForbiddenInWorkflowError"):
            await handle.result()
        failure = (await handle.describe()).failure
    line = ROUTES[route].__code__.co_firstlineno
    if "asyncio" in route:  # its coroutine begins where it is awaited
        line = runner.__code__.co_firstlineno + 8
        assert f'File "{HERE}", line {line}, in run' in failure
    else:
        assert f"(at {HERE}:{line})" in failure
    assert any(word in failure for word in ("activity", "workflow.")), failure
