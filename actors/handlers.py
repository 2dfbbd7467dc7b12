"""Messages inside a run: signal and update handlers, validators, queries.

What a handler raises never ends the run (R7); validators and queries cannot change it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.errors import PayloadError
from ..journal.failures import safe_message
from ..journal.fold import EMPTY
from ..journal.payloads import Payload
from .asyncio_forbidden import read_only
from .continuation import RunEnds, continuing
from .definitions import HandlerDefinition, own_handler
from .errors import QueryFailedError, RegistrationError, UnknownHandlerError, UpdateRejectedError
from .event_loop import TurnAborted
from .failure_conversion import failure_of
from .mailbox import Query
from .signal_waits import SignalQueues

if TYPE_CHECKING:
    from .workflow_instance import Delivery, WorkflowInstance

#: Signals that wait for a handler that the run has not set yet; further ones are refused (R25).
KEPT = 1_000
#: What is no failure of a handler: the user at the keyboard, the end of the code in memory, the end of the turn.
_NOT_ITS_OWN = (KeyboardInterrupt, GeneratorExit, TurnAborted)


class MessageHandlers:
    """The handlers of one live run.

    Attributes:
        running: How many async handlers have not ended.
        own: Handlers that the run has set itself, by kind and name.
        delivered: How many messages have come.
    """

    __slots__ = ("_kept", "_queues", "_run", "delivered", "own", "running")

    def __init__(self, run: WorkflowInstance) -> None:
        self._run = run
        self.own: dict[tuple[str, str | None], HandlerDefinition] = EMPTY
        self._kept: dict[int, Delivery] = EMPTY
        self._queues: SignalQueues | None = None  # hardly any run waits for signals
        self.running = 0
        self.delivered = 0

    @property
    def has_own_messages(self) -> bool:
        """Whether the run has set handlers that change it: functions that may hold what no checkpoint does."""
        return any(kind != "query" for kind, _name in self.own)

    # --- handlers that the run sets itself

    def set(
        self,
        kind: str,
        name: str | None,
        fn: Callable[..., Any] | None,
        validator: Callable[..., None] | None = None,
    ) -> None:
        """Let a function have the messages of a name, or (None) of all names without a handler; None takes it away.

        Kept signals that it takes are handled at once, in order, before any later one.

        Raises:
            RegistrationError: The function does not fit, or nothing in the class says that it sets handlers.
        """
        if self._run.read_only:
            raise read_only(f"set_{kind}_handler()")
        if self._run.loop.discarded:
            return
        definition = self._run._definition
        if not definition.sets_handlers:
            raise RegistrationError(
                f"workflow.set_{kind}_handler() was called for a {definition.name}, but no method of "
                f"{definition.cls.__qualname__} names it, so that signals which came before were refused: call it, by "
                f"this name, in a method of the class"
            )
        if fn is None:
            self.own = {key: own for key, own in self.own.items() if key != (kind, name)}
            return
        self.own = {**self.own, (kind, name): own_handler(kind, name, fn, validator, definition.name)}
        if kind == "signal":
            for number, delivery in list(self._kept.items()):
                event = delivery.event
                assert isinstance(event, ev.SignalReceived)
                if number in self._kept and self.find(kind, event.name) is not None:
                    del self._kept[number]
                    self._run._outputs.append(ev.SignalTaken(number))
                    self.signal(delivery)

    def find(self, kind: str, name: str) -> HandlerDefinition | None:
        """The handler of a message: the run's own, the declared one, or one for all names."""
        definition = self._run._definition
        own = self.own
        if own:
            found = own.get((kind, name)) or definition.handlers[kind].get(name) or own.get((kind, None))
        else:
            found = definition.handlers[kind].get(name)
        return found or definition.dynamic.get(kind)

    def _keep(self, delivery: Delivery, name: str) -> None:
        """Keep a signal for a handler that may come."""
        if len(self._kept) >= KEPT:
            raise UnknownHandlerError("signal", name, self._run._definition.name, self._names("signal"))
        self.skip_kept(delivery)
        self._run._outputs.append(ev.SignalKept(delivery.number, name))

    def _names(self, kind: str) -> list[str]:
        own = [name for of_kind, name in self.own if of_kind == kind and name is not None]
        return [*self._run._definition.handlers[kind], *own]

    # --- deliveries

    def signal(self, delivery: Delivery) -> None:
        """Deliver a signal."""
        event = delivery.event
        assert isinstance(event, ev.SignalReceived)
        self.delivered += 1
        try:
            handler = self._run._definition.handlers["signal"].get(event.name)  # the common case first
            if handler is None or self.own:
                handler = self.find("signal", event.name)
            if handler is None:
                if self._queues is not None and self._queues.give(event.name, delivery):
                    return
                if self._run._definition.sets_handlers:
                    self._keep(delivery, event.name)
                    return
                handler = self._handler("signal", event.name)
            args = handler.decode_args(self._run._converter, event)
            if handler.is_async:
                called = handler.fn(self._run._object, *args)  # a user's decorator may raise here
                self.running += 1
                coroutine = self._signal_handler(delivery.number, event.name, called)
                self._run.loop.create_task(coroutine, name=f"signal {handler.name}")
            else:
                handler.fn(self._run._object, *args)
            if self._run._definition.waits_for_signals:
                self.queues().was_handled(event.name, delivery)
        except _NOT_ITS_OWN:
            raise
        except BaseException as error:  # noqa: BLE001  (R7: the run goes on)
            self._failed(delivery.number, event.name, self._failure(error))

    def _failed(self, number: int, name: str, error: BaseException) -> None:
        if self._queues is not None:
            self._queues.forget(number)
        self._run._outputs.append(ev.HandlerFailed(number, failure_of(error, self._run._converter), name))

    async def _signal_handler(self, number: int, name: str, handler: Any) -> None:
        try:
            await handler
        except _NOT_ITS_OWN:
            raise
        except BaseException as error:  # noqa: BLE001  (R7: the run goes on)
            self._failed(number, name, self._failure(error))
        finally:
            self.running -= 1

    def update(self, delivery: Delivery) -> None:
        """Deliver an update; one that was journalled before meets its validator now."""
        event = delivery.event
        assert isinstance(event, ev.UpdateReceived)
        self.delivered += 1
        number = delivery.number
        if delivery.was_received:
            refusal = self._validate(event)
            if refusal is not None:
                failure = failure_of(refusal, self._run._converter)
                self._run._outputs.append(ev.UpdateFailed(number, failure, rejected=True))
                return
        try:
            handler = self._handler("update", event.name)
            args = handler.decode_args(self._run._converter, event)
            if handler.is_async:
                called = handler.fn(self._run._object, *args)
                self.running += 1
                coroutine = self._update_handler(number, handler, called)
                self._run.loop.create_task(coroutine, name=f"update {handler.name}")
            else:
                result = handler.fn(self._run._object, *args)
                self._run._outputs.append(
                    ev.UpdateCompleted(number, handler.codec.encode_result(self._run._converter, result))
                )
        except _NOT_ITS_OWN:
            raise
        except BaseException as error:  # noqa: BLE001  (R7: the caller gets it)
            failure = failure_of(self._failure(error), self._run._converter)
            self._run._outputs.append(ev.UpdateFailed(number, failure))

    async def _update_handler(self, number: int, handler: HandlerDefinition, coroutine: Any) -> None:
        try:
            result = handler.codec.encode_result(self._run._converter, await coroutine)
            self._run._outputs.append(ev.UpdateCompleted(number, result))
        except _NOT_ITS_OWN:
            raise
        except BaseException as error:  # noqa: BLE001  (R7: the caller gets it)
            failure = failure_of(self._failure(error), self._run._converter)
            self._run._outputs.append(ev.UpdateFailed(number, failure))
        finally:
            self.running -= 1

    def _failure(self, error: BaseException) -> BaseException:
        """What a handler has failed with, given what has left it.

        Raises:
            RunEnds: It has not: it has said that the run goes on as a new one.
        """
        continued = continuing(error)
        if continued is None:
            return error
        sagas = self._run.sagas
        refusal = None if sagas is None else sagas.refusal_to_lose("a handler", continued)
        if refusal is None:
            raise RunEnds(continued) from None
        return refusal

    def refused(self, delivery: Delivery, error: BaseException) -> ev.HandlerFailed | ev.UpdateFailed:
        """What becomes of a message when there is no object to handle it."""
        failure = failure_of(error, self._run._converter)
        if type(delivery.event) is ev.UpdateReceived:
            return ev.UpdateFailed(delivery.number, failure)
        assert isinstance(delivery.event, ev.SignalReceived)
        return ev.HandlerFailed(delivery.number, failure, delivery.event.name)

    def _handler(self, kind: str, name: str) -> HandlerDefinition:
        handler = self.find(kind, name)
        if handler is None:
            raise UnknownHandlerError(kind, name, self._run._definition.name, self._names(kind))
        return handler

    # --- signals that the run waits for

    def queues(self) -> SignalQueues:
        """Who waits for what."""
        if self._queues is None:
            self._queues = SignalQueues()
        return self._queues

    def take(self, name: str) -> Delivery | None:
        """The oldest signal of a name that nobody has taken."""
        for number, delivery in self._kept.items():
            assert isinstance(delivery.event, ev.SignalReceived)
            if delivery.event.name == name:
                return self._kept.pop(number)
        return None if self._queues is None else self._queues.take_handled(name)

    def arguments(self, delivery: Delivery) -> list[Any]:
        """The arguments of a signal, as its handler declares them."""
        event = delivery.event
        assert isinstance(event, ev.SignalReceived)
        handler = self.find("signal", event.name)
        if handler is None or not handler.name:
            return [self._run._converter.decode(payload) for payload in event.args]
        return handler.decode_args(self._run._converter, event)

    # --- messages that came while a step ran whose body a replay does not run again

    def skip(self, delivery: Delivery) -> None:
        """A message was delivered."""
        self.delivered += 1
        event = delivery.event
        if (
            self._run._definition.waits_for_signals
            and type(event) is ev.SignalReceived
            and self.find("signal", event.name) is not None
        ):
            self.queues().was_handled(event.name, delivery)

    def skip_kept(self, delivery: Delivery) -> None:
        """A signal was kept for later."""
        if self._kept is EMPTY:
            self._kept = {}
        self._kept[delivery.number] = delivery

    def skip_gone(self, number: int) -> None:
        """A signal was taken, or its handler has failed."""
        self._kept.pop(number, None)
        if self._queues is not None:
            self._queues.forget(number)

    # --- read-only calls, between turns

    def validate(self, event: ev.UpdateReceived) -> BaseException | None:
        """Ask an update's validator; returns what it raised, or that it tried to change the run."""
        with self._run.loop:
            refusal = self._run._context.copy().run(self._validate, event)
        if self._run.loop.has_ready():
            return UpdateRejectedError(
                f"the validator of {event.name!r} woke a waiting part of the workflow, by a future or an event; "
                f"validators must not change anything: do it in the handler"
            )
        return refusal

    def _validate(self, event: ev.UpdateReceived) -> BaseException | None:
        self._run.read_only = True
        self._run._reading_randoms = None
        try:
            handler = self._handler("update", event.name)
            if handler.validator is not None:
                args = handler.decode_args(self._run._converter, event)
                handler.validator(self._run._object, *args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (a refusal, whatever it is)
            return error
        finally:
            self._run.read_only = False
        return None

    def query(self, name: str, args: Sequence[Payload], headers: tuple[ev.Header, ...] = ()) -> Payload:
        """Run a query's handler.

        Raises:
            UnknownHandlerError: There is none of this name.
            PayloadError: An argument or the result does not fit its hint, or has no stored form.
            QueryFailedError: It raised, also while a value was converted, or it tried to change the run.
        """
        handler = self._handler("query", name)
        self._run.read_only = True
        self._run._reading_randoms = None
        try:
            with self._run.loop:
                answer: Payload = self._run._context.copy().run(
                    self._answer, handler, Query(name, tuple(args), headers)
                )
        except (KeyboardInterrupt, PayloadError, QueryFailedError):
            raise
        except (
            BaseException
        ) as error:  # the stored arguments do not fit any more, or a class of the user raised
            raise QueryFailedError(
                f"query {name!r}: its arguments or its result cannot be converted: {_said(error)}"
            ) from error
        finally:
            self._run.read_only = False
        if self._run.loop.has_ready():
            raise QueryFailedError(
                f"query {name!r} woke a waiting part of the workflow (it set a future or an event); queries must "
                f"not change anything: use a signal or an update"
            )
        return answer

    def _answer(self, handler: HandlerDefinition, query: Query) -> Payload:
        values = handler.decode_args(self._run._converter, query)
        try:
            result = handler.fn(self._run._object, *values)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise QueryFailedError(f"query {query.name!r} raised {_said(error)}") from error
        return handler.codec.encode_result(self._run._converter, result)


def suppressed(outputs: Sequence[ev.Event]) -> tuple[int, ...]:
    """Messages whose handlers have failed in the turn in which main failed: main's outcome stands (R7)."""
    numbers = []
    for event in outputs:
        if type(event) is ev.HandlerFailed:
            numbers.append(event.message)
        elif type(event) is ev.UpdateFailed and not event.rejected:
            numbers.append(event.update)
    return tuple(numbers)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {safe_message(error)}"
