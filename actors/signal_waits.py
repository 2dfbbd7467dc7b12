"""Waiting for a signal in the middle of ``run``: signals are kept until they are waited for, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..journal import events as ev
from .asyncio_forbidden import read_only
from .conditions import note_met, note_wait
from .context import current_instance
from .definitions import MARK, Mark
from .errors import RegistrationError
from .options import check_text, in_seconds, microseconds
from .step_definitions import UNSET
from .typing import Ts

if TYPE_CHECKING:
    from .workflow_instance import Delivery, WorkflowInstance

D = TypeVar("D")

#: Signals of one name with a handler of their own that wait to be waited for; the oldest are forgotten, as their
#: handler has had them.
HANDLED_KEPT = 1_000


class SignalQueues:
    """Who waits for which signal, and signals with a handler that nobody has waited for yet."""

    __slots__ = ("_handled", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[Delivery]]] = {}
        self._handled: dict[str, deque[Delivery]] = {}

    def give(self, name: str, delivery: Delivery) -> bool:
        """Give a signal to who has waited for it longest; returns whether there is anybody."""
        for waiter in self._waiting.get(name, ()):
            if not waiter.done():
                waiter.set_result(delivery)
                return True
        return False

    def was_handled(self, name: str, delivery: Delivery) -> None:
        """A signal's own handler has had it: now whoever waits for it."""
        if not self.give(name, delivery):
            self._handled.setdefault(name, deque(maxlen=HANDLED_KEPT)).append(delivery)

    def take_handled(self, name: str) -> Delivery | None:
        """The oldest one that nobody has waited for."""
        queue = self._handled.get(name)
        return queue.popleft() if queue else None

    def give_back(self, name: str, delivery: Delivery) -> None:
        """Whoever was given it does not want it any more."""
        if not self.give(name, delivery):
            self._handled.setdefault(name, deque(maxlen=HANDLED_KEPT)).appendleft(delivery)

    def forget(self, number: int) -> None:
        """A signal was taken."""
        for queue in self._handled.values():
            if queue and any(delivery.number == number for delivery in queue):
                kept = [delivery for delivery in queue if delivery.number != number]
                queue.clear()
                queue.extend(kept)

    def wait(self, name: str, waiter: asyncio.Future[Delivery]) -> None:
        """Wait behind the others."""
        self._waiting.setdefault(name, []).append(waiter)

    def leave(self, name: str, waiter: asyncio.Future[Delivery]) -> None:
        """Do not wait any more."""
        waiting = self._waiting[name]
        waiting.remove(waiter)
        if not waiting:
            del self._waiting[name]


@overload
async def wait_for_signal(
    signal: Callable[[Any, *Ts], Awaitable[None] | None],
    /,
    *,
    timeout: timedelta | float | None = None,  # noqa: ASYNC109
) -> tuple[*Ts]: ...
@overload
async def wait_for_signal(
    signal: Callable[[Any, *Ts], Awaitable[None] | None],
    /,
    *,
    timeout: timedelta | float | None = None,  # noqa: ASYNC109
    default: D,
) -> tuple[*Ts] | D: ...
@overload
async def wait_for_signal(
    signal: str,
    /,
    *,
    timeout: timedelta | float | None = None,  # noqa: ASYNC109
) -> tuple[Any, ...]: ...
@overload
async def wait_for_signal(
    signal: str,
    /,
    *,
    timeout: timedelta | float | None = None,  # noqa: ASYNC109
    default: D,
) -> tuple[Any, ...] | D: ...
async def wait_for_signal(
    signal: Any,
    /,
    *,
    timeout: timedelta | float | None = None,  # noqa: ASYNC109
    default: Any = UNSET,
) -> Any:
    """Wait for the next signal of a name, and take it.

    A signal that came before is taken at once, the oldest first; each is taken once, by whoever has waited longest.
    One with a handler goes to its handler first. Call it by this name in a method of the workflow class: the class's
    code says that signals may have to be kept.

    Args:
        signal: A method declared with ``@workflow.signal``, or a name, which needs no handler.
        timeout: A timedelta or seconds; None waits for ever.
        default: What to return when the time has passed.

    Returns:
        The signal's arguments, as a tuple.

    Raises:
        TimeoutError: The time has passed, and there is no ``default``.
        TypeError: It is no signal.
        RegistrationError: No method of the class names this call.
    """
    instance = current_instance("wait_for_signal()")
    name = _name_of(signal)
    limit = None if timeout is None else microseconds("wait_for_signal timeout", timeout)
    if instance.read_only:
        raise read_only("wait_for_signal()")
    definition = instance._definition
    if not definition.waits_for_signals:
        raise RegistrationError(
            f"workflow.wait_for_signal() was called for a {definition.name}, but no method of "
            f"{definition.cls.__qualname__} names it, so that signals which came before were not kept: call it, by "
            f"this name, in a method of the class"
        )
    delivery = instance.handlers.take(name)
    if delivery is None:
        try:
            delivery = await _wait(instance, name, limit)
        except TimeoutError:
            if default is UNSET:
                text = f"wait_for_signal: no signal {name!r} came within {in_seconds(timeout or 0)}"
                raise TimeoutError(text) from None
            return default
    instance._outputs.append(ev.SignalTaken(delivery.number))
    return tuple(instance.handlers.arguments(delivery))


async def _wait(instance: WorkflowInstance, name: str, limit: int | None) -> Delivery:
    if limit == 0:
        raise TimeoutError
    queues = instance.handlers.queues()
    waiter: asyncio.Future[Delivery] = instance.loop.create_future()
    queues.wait(name, waiter)
    timer = None
    number = 0
    if limit is None:
        number = note_wait(instance, f"signal {name!r}")
    else:
        timer = instance.loop.call_later(limit / 1_000_000, _give_up, waiter)
    try:
        return await waiter
    except asyncio.CancelledError:
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            queues.give_back(name, waiter.result())  # its handler, which ran first, has cancelled this wait
        raise
    finally:
        queues.leave(name, waiter)
        if timer is not None:
            timer.cancel()
        if number:
            note_met(instance, number)


def _give_up(waiter: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


def _name_of(signal: Any) -> str:
    """The name of a signal.

    Raises:
        TypeError: It is none.
    """
    if isinstance(signal, str):
        check_text("wait_for_signal: the name", signal)
        return signal
    mark = getattr(signal, "__dict__", {}).get(MARK)
    if not isinstance(mark, Mark) or mark.kind != "signal" or not mark.name:
        raise TypeError(
            f"wait_for_signal needs a method declared with @workflow.signal, or a name, not {signal!r}"
        )
    return mark.name
