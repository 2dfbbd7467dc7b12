"""Runs the payload codecs over events: small payloads of quick codecs at once, all others off the loop.

Plain codecs run in threads, ``async def`` ones on the loop, each call for itself; nothing here waits for anything
else, so that one slow payload holds nobody but the run that it belongs to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from ..journal import events as ev
from ..journal.codecs import PayloadCodec, checked, is_async, trouble
from ..journal.coded_fields import About, fields_of, map_event
from ..journal.errors import PayloadCodecError
from ..journal.payloads import Payload, total_size
from .errors import RuntimeClosedError
from .thread_pool import ThreadPool, Worker

Way = Literal["encode", "decode"]
#: Gets the events, or why they could not be had.
Done = Callable[[list[Any] | PayloadCodecError], None]

#: Calls of codecs in threads at a time.
THREADS = 32


class EventCoder:
    """Encodes and decodes events with a list of codecs.

    Attributes:
        jobs: How many calls of ``start`` are on their way.
        encoding: Bytes of those that are being encoded, so on their way into the journal.
    """

    def __init__(self, codecs: Sequence[PayloadCodec], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._codecs = tuple(codecs)
        asynchronous = any(is_async(codec, way) for codec in codecs for way in ("encode", "decode"))
        self._inline_limit = 0 if asynchronous else min(codec.inline_limit for codec in codecs)
        self._threads = ThreadPool("everact-codec")
        self._free = THREADS
        self._waiting: deque[Callable[[Worker], Callable[[], None] | None]] = deque()
        self._tasks: set[asyncio.Task[list[Any] | PayloadCodecError]] = set()
        self._idle: asyncio.Future[None] | None = None
        self._is_closed = False
        self.jobs = 0
        self.encoding = 0

    def runs(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a task is one in which the codecs run."""
        return task in self._tasks

    def digest_keys(self) -> tuple[bytes, ...]:
        """Keys for the digests of requests, the present one first; none when no codec has one."""
        return next((keys for codec in self._codecs if (keys := codec.digest_keys())), ())

    def start(self, way: Way, events: Sequence[Any], done: Done, about: About | None = None) -> None:
        """Encode or decode events.

        Args:
            way: ``encode`` or ``decode``.
            events: Any events; those without payloads stay the same objects.
            done: Called on the loop's thread with as many events or a PayloadCodecError; before this returns, when
                the codecs are quick and the payloads small.
            about: Names what the fields of the events belong to, for the error.
        """
        if way == "decode":  # why a run stands still may be our own words, which are written as they are
            coded = [
                event
                for event in events
                if type(event) is not ev.RunStalled or event.failure.coded is not None
            ]
            if len(coded) < len(events):
                done = partial(_among, events, done)
                events = coded
        payloads = _payloads_of(events)
        if not payloads:
            done(list(events))
            return
        limit = self._inline_limit
        size = total_size(payloads)
        if limit and size <= limit:
            result: list[Any] | PayloadCodecError
            try:
                result = _with(events, self._inline(way, payloads))
            except PayloadCodecError as error:
                result = self._located(way, events, error, about)
            done(result)
            return
        self.jobs += 1
        if way == "encode":
            self.encoding += size
            done = partial(self._encoded, size, done)
        task = self._loop.create_task(self._run(way, events, payloads, about))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, done))
        if self._is_closed:
            task.cancel()

    def _ended(self, done: Done, task: asyncio.Task[list[Any] | PayloadCodecError]) -> None:
        self._tasks.discard(task)
        self.jobs -= 1
        if not self.jobs and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
        if task.cancelled():  # perhaps before its first step
            done(PayloadCodecError("the Runtime was left while the payload codecs were at work"))
        elif (error := task.exception()) is not None:  # ours; the run that waits must hear of it all the same
            done(PayloadCodecError(f"internal error at the payload codecs: {type(error).__name__}: {error}"))
        else:
            done(task.result())

    async def decode(self, events: Sequence[Any], about: About | None = None) -> list[Any]:
        """Decode events for a caller.

        Raises:
            PayloadCodecError: A payload could not be decoded.
            RuntimeClosedError: The runtime was left meanwhile.
        """
        future: asyncio.Future[list[Any] | PayloadCodecError] = self._loop.create_future()

        def done(result: list[Any] | PayloadCodecError) -> None:
            if not future.done():
                future.set_result(result)

        self.start("decode", events, done, about)
        result = await future
        if isinstance(result, PayloadCodecError):
            if self._is_closed:
                raise RuntimeClosedError(result.message) from result
            raise result
        return result

    async def idle(self, limit: float | None = None) -> bool:
        """Wait until nothing is on its way, at most ``limit`` seconds; returns whether that is so."""
        while self.jobs:
            if self._idle is None:
                self._idle = self._loop.create_future()
            done, _ = await asyncio.wait([self._idle], timeout=limit)
            if not done:
                return False
        return True

    def close(self) -> None:
        """Wait for nothing any more: who still waits for the codecs gets an error."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        self._waiting.clear()
        self._threads.close()

    def _encoded(self, size: int, done: Done, result: list[Any] | PayloadCodecError) -> None:
        self.encoding -= size
        done(result)

    # --- at once

    def _inline(self, way: Way, payloads: list[Payload]) -> list[Payload]:
        for codec in self._in_order(way):
            payloads = _call(codec, way, payloads)
        return payloads

    def _located(
        self, way: Way, events: Sequence[Any], error: PayloadCodecError, about: About | None
    ) -> PayloadCodecError:
        """The error of the first payload that fails alone, with its place."""
        for where, payload in _places(events, about):
            try:
                self._inline(way, [payload])
            except PayloadCodecError as alone:
                return _at(alone, where)
        return error

    # --- off the loop

    async def _run(
        self, way: Way, events: Sequence[Any], payloads: list[Payload], about: About | None
    ) -> list[Any] | PayloadCodecError:
        try:
            return _with(events, await self._through(way, payloads))
        except PayloadCodecError as error:
            return await self._located_later(way, events, error, about)

    async def _through(self, way: Way, payloads: list[Payload]) -> list[Payload]:
        plain: list[PayloadCodec] = []
        for codec in self._in_order(way):
            if not is_async(codec, way):
                plain.append(codec)
                continue
            payloads = await self._in_thread(way, plain, payloads)
            plain = []
            try:
                made = await getattr(codec, way)(payloads)
            except Exception as error:
                raise trouble(codec, way, error) from error
            payloads = checked(codec, way, payloads, made)
        return await self._in_thread(way, plain, payloads)

    async def _located_later(
        self, way: Way, events: Sequence[Any], error: PayloadCodecError, about: About | None
    ) -> PayloadCodecError:
        for where, payload in _places(events, about):
            try:
                await self._through(way, [payload])
            except PayloadCodecError as alone:
                return _at(alone, where)
        return error

    async def _in_thread(
        self, way: Way, codecs: list[PayloadCodec], payloads: list[Payload]
    ) -> list[Payload]:
        """One hop for all plain codecs that follow each other."""
        if not codecs:
            return payloads
        future: asyncio.Future[list[Payload]] = self._loop.create_future()

        def work(_worker: Worker) -> Callable[[], None]:
            made, codec = payloads, codecs[0]
            try:
                for codec in codecs:
                    made = _call(codec, way, made)
            except PayloadCodecError as error:
                return partial(self._tell, future, error)
            except BaseException as error:  # noqa: BLE001  (SystemExit and its like: a thread must not die of it)
                return partial(self._tell, future, trouble(codec, way, error))
            return partial(self._tell, future, made)

        if self._free:
            try:
                self._threads.submit(work)
            except RuntimeError as error:
                raise PayloadCodecError(
                    f"the system gives no thread for the payload codecs: {error}"
                ) from error
            self._free -= 1
        else:
            self._waiting.append(work)
        return await future

    def _tell(self, future: asyncio.Future[list[Payload]], result: list[Payload] | PayloadCodecError) -> None:
        try:
            self._loop.call_soon_threadsafe(self._returned, future, result)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            return

    def _returned(
        self, future: asyncio.Future[list[Payload]], result: list[Payload] | PayloadCodecError
    ) -> None:
        if self._waiting:
            self._threads.submit(self._waiting.popleft())
        else:
            self._free += 1
        if future.done():
            return
        if isinstance(result, PayloadCodecError):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _in_order(self, way: Way) -> Sequence[PayloadCodec]:
        return self._codecs if way == "encode" else self._codecs[::-1]


def _call(codec: PayloadCodec, way: Way, payloads: list[Payload]) -> list[Payload]:
    try:
        made = getattr(codec, way)(payloads)
    except Exception as error:
        raise trouble(codec, way, error) from error
    return checked(codec, way, payloads, made)


def _payloads_of(events: Sequence[ev.Event]) -> list[Payload]:
    found: list[Payload] = []

    def note(payload: Payload, _place: str) -> Payload:
        found.append(payload)
        return payload

    for event in events:
        map_event(event, note)
    return found


def _with(events: Sequence[ev.Event], payloads: list[Payload]) -> list[Any]:
    left: Iterator[Payload] = iter(payloads)
    try:
        return [map_event(event, lambda _payload, _place: next(left)) for event in events]
    except msgspec.MsgspecError as error:
        raise PayloadCodecError(
            f"the text of a failure came out of the payload codecs damaged: {error}"
        ) from error


def _places(events: Sequence[ev.Event], about: About | None) -> Iterator[tuple[str, Payload]]:
    for event in events:
        yield from fields_of(event, about)


def _among(events: Sequence[Any], done: Done, result: list[Any] | PayloadCodecError) -> None:
    """Put decoded events back among those that needed no decoding."""
    if isinstance(result, PayloadCodecError):
        done(result)
        return
    left = iter(result)
    done(
        [
            event if type(event) is ev.RunStalled and event.failure.coded is None else next(left)
            for event in events
        ]
    )


def _at(error: PayloadCodecError, where: str) -> PayloadCodecError:
    placed = PayloadCodecError(error.message, where, error.path)
    placed.__cause__ = error.__cause__
    return placed
