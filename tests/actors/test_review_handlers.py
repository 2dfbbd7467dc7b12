"""What leaves handlers and queries is an answer or a dead letter; log records respect the levels that are set."""

import asyncio
import functools
import logging
from dataclasses import dataclass

import pytest
from support.hosting import hosted, settled

from everact import workflow
from everact.actors.workflow_logger import workflow_logger
from everact.exceptions import EveractError, PayloadEncodeError, QueryFailedError, UpdateFailedError
from everact.journal.memory_store import MemoryJournal


class Stop(BaseException):
    pass


@dataclass
class Shy:
    """Reading its field raises, so that it cannot be stored."""

    field: int = 0

    def __getattribute__(self, name):
        if name == "field":
            raise RuntimeError("shy")
        return object.__getattribute__(self, name)


class Mute(Exception):
    def __str__(self):
        raise KeyError("mute")


def without_its_argument(fn):
    """A decorator with a mistake: what it makes cannot be called as its signature says."""

    @functools.wraps(fn)
    async def call(self):
        return await fn(self, 1)

    return call


@workflow.defn
class Counter:
    def __init__(self) -> None:
        self.n = 0
        self.woken = asyncio.Event()

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.n < 0)
        return self.n

    @workflow.signal
    def end(self) -> None:
        self.n = -1

    @workflow.signal
    def stop_now(self) -> None:
        raise Stop("now")

    @workflow.signal
    async def stop_later(self) -> None:
        await asyncio.sleep(0.001)
        raise Stop("later")

    @workflow.signal
    @without_its_argument
    async def broken_signal(self, n: int) -> None:
        pass

    @workflow.update
    def update_now(self) -> None:
        raise Stop("now")

    @workflow.update
    async def update_later(self) -> None:
        await asyncio.sleep(0.001)
        raise Stop("later")

    @workflow.update
    @without_its_argument
    async def broken_update(self, n: int) -> None:
        pass

    @workflow.query
    def idle(self) -> bool:
        return workflow.all_handlers_finished()

    @workflow.query
    def shy(self) -> Shy:
        return Shy()

    @workflow.query
    def nameless(self) -> object:
        return object()

    @workflow.query
    def mute(self) -> int:
        raise Mute

    @workflow.query
    def double(self, n: int) -> int:
        return 2 * n

    @workflow.query
    def when(self) -> str:
        return workflow.now().isoformat()


@pytest.mark.parametrize(("signal", "said"), [("stop_now", "Stop: now"), ("stop_later", "Stop: later")])
async def test_a_signal_handler_that_raises_no_exception_leaves_a_dead_letter(signal, said):
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter)
        await handle.signal(signal)
        await asyncio.sleep(0.02)
        await settled(runtime)
        described = await handle.describe()
        assert [letter.reason for letter in described.dead_letters] == [said]
        assert await handle.query(Counter.idle)
        await handle.signal(Counter.end)
        assert await handle.result() == -1


@pytest.mark.parametrize(("update", "said"), [("update_now", "Stop: now"), ("update_later", "Stop: later")])
async def test_an_update_handler_that_raises_no_exception_is_answered(update, said):
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter)
        with pytest.raises(UpdateFailedError, match=said):
            await asyncio.wait_for(handle.execute_update(update), 10)
        assert (await handle.describe()).status == "running"
        assert await handle.query(Counter.idle)


async def test_a_handler_that_cannot_be_called_does_not_count_as_running():
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter)
        await handle.signal(Counter.broken_signal, 1)
        with pytest.raises(UpdateFailedError, match="TypeError"):
            await handle.execute_update(Counter.broken_update, 1)
        (letter,) = (await handle.describe()).dead_letters
        assert "TypeError" in letter.reason
        assert await handle.query(Counter.idle)


@pytest.mark.parametrize(
    ("query", "kind", "said"),
    [
        (
            "shy",
            QueryFailedError,
            "query 'shy': its arguments or its result cannot be converted: RuntimeError: shy",
        ),
        ("mute", QueryFailedError, "query 'mute' raised Mute: <its __str__ raised KeyError>"),
        ("nameless", PayloadEncodeError, "result of query Counter.nameless"),
    ],
)
async def test_a_query_whose_result_cannot_be_had_is_refused_and_harms_nothing(query, kind, said):
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter)
        with pytest.raises(kind) as caught:
            await handle.query(query)
        assert said in str(caught.value)
        assert (await handle.describe()).status == "running"
        assert await handle.query(Counter.double, 2) == 4


@pytest.mark.usefixtures("keeps_code")
async def test_a_query_whose_arguments_do_not_fit_is_refused_and_harms_nothing():
    """The caller may know another version of the class: what it has encoded does not fit this one."""
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter)
        await settled(runtime)
        instance = runtime._shard.find(handle.workflow_id).instance
        with pytest.raises(QueryFailedError, match="double: the stored arguments do not fit its signature"):
            instance.handlers.query("double", [])
        with pytest.raises(EveractError, match="argument 'n' of query Counter.double"):
            instance.handlers.query("double", [runtime._converter.encode("x")])
        assert not instance.read_only
        assert await handle.query(Counter.double, 2) == 4
        assert await handle.query(Counter.when)


@pytest.mark.parametrize("muted", [True, False])
def test_records_respect_the_level_of_the_logger_that_they_name(muted, caplog):
    runtime_logger = logging.getLogger("everact.runtime")
    seen = []
    handler = logging.Handler()
    handler.emit = seen.append
    for logger in (runtime_logger, workflow_logger):
        logger.addHandler(handler)
    try:
        with caplog.at_level(logging.ERROR if muted else logging.INFO, "everact.runtime"):
            for name in ("everact.runtime", "everact.workflow"):
                workflow_logger.emit(
                    logging.getLogger(name).makeRecord(name, logging.WARNING, __file__, 0, "text", (), None)
                )
    finally:
        for logger in (runtime_logger, workflow_logger):
            logger.removeHandler(handler)
    names = ["everact.workflow"] if muted else ["everact.runtime", "everact.workflow"]
    assert [record.name for record in seen] == names, "each through the handlers of its own logger"
