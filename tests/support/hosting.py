"""Runtimes for tests: on a journal in memory, driven step by step."""

import asyncio
import contextlib
from datetime import timedelta
from types import SimpleNamespace

from everact import Runtime, activity
from everact.actors.loading import ReplayingError
from everact.journal.memory_store import MemoryJournal, MemoryStore

LIMIT = 20.0


def hosted(journal, *workflows, activities=(), grace=0.0, **options):
    """A runtime on a ``MemoryJournal`` (another "start" each time) or on a path."""
    store = MemoryStore(journal) if isinstance(journal, MemoryJournal) else journal
    return Runtime(
        store, workflows=workflows, activities=activities, grace=timedelta(seconds=grace), **options
    )


async def until(condition, limit=LIMIT):
    """Wait for what the event loop is about to do; polls, so it never waits longer than needed."""
    async with asyncio.timeout(limit):
        while not condition():
            await asyncio.sleep(0.0005)


async def settled(runtime):
    """Every mailbox is empty, everything is durable, and what was dispatched has begun."""
    for _ in range(3):
        await runtime._shard.idle()
        await asyncio.sleep(0)


async def tick(runtime, clock, seconds):
    """Let time pass and everything that falls due happen."""
    clock.advance(seconds)
    runtime._shard.timers.check()
    await settled(runtime)


def loaded(actor):
    """A run's code, however many slices its replay takes."""
    while True:
        with contextlib.suppress(ReplayingError):
            return actor.load()


def kinds(history):
    return [event.kind for event in history]


def commands(history, kind="ActivityScheduled"):
    """``(number, type)`` of a run's activity commands in the order of its history."""
    return [(e.event.command, e.event.activity_type) for e in history if e.kind == kind]


def gate(name="gated", **options):
    """An activity that counts its calls and waits until the test opens it: ``.fn``, ``.calls``, ``.open``."""
    state = SimpleNamespace(calls=[], open=asyncio.Event(), result="through")

    async def gated(label: str) -> str:
        state.calls.append(label)
        await state.open.wait()
        return state.result

    state.fn = activity.defn(name=name, **options)(gated)
    return state
