"""Messages inside a run: signal and update handlers, validators, queries.

What a handler raises never ends the run (R7); validators and queries cannot change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.errors import PayloadError
from ..journal.failures import safe_message
from ..journal.payloads import Payload
from .definitions import HandlerDefinition
from .errors import QueryFailedError, UnknownHandlerError, UpdateRejectedError
from .event_loop import TurnAborted
from .failure_conversion import failure_of
from .randomness import Randomness

if TYPE_CHECKING:
    from .workflow_instance import Delivery, WorkflowInstance

#: What is no failure of a handler: the user at the keyboard, the end of the code in memory, the end of the turn.
_NOT_ITS_OWN = (KeyboardInterrupt, GeneratorExit, TurnAborted)


class MessageHandlers:
    """The handlers of one live run.

    Attributes:
        running: How many async handlers have not ended.
    """

    __slots__ = ("_run", "running")

    def __init__(self, run: WorkflowInstance) -> None:
        self._run = run
        self.running = 0

    def signal(self, delivery: Delivery) -> None:
        """Deliver a signal."""
        event = delivery.event
        assert isinstance(event, ev.SignalReceived)
        try:
            handler = self._handler("signal", event.name)
            args, _ = handler.codec.decode_args(self._run._converter, event.args)
            if handler.is_async:
                called = handler.fn(self._run._object, *args)  # a user's decorator may raise here
                self.running += 1
                coroutine = self._signal_handler(delivery.number, called)
                self._run.loop.create_task(coroutine, name=f"signal {handler.name}")
            else:
                handler.fn(self._run._object, *args)
        except _NOT_ITS_OWN:
            raise
        except BaseException as error:  # noqa: BLE001  (R7: the run goes on)
            self._run._outputs.append(
                ev.HandlerFailed(delivery.number, failure_of(error, self._run._converter))
            )

    async def _signal_handler(self, number: int, handler: Any) -> None:
        try:
            await handler
        except _NOT_ITS_OWN:
            raise
        except BaseException as error:  # noqa: BLE001  (R7: the run goes on)
            self._run._outputs.append(ev.HandlerFailed(number, failure_of(error, self._run._converter)))
        finally:
            self.running -= 1

    def update(self, delivery: Delivery) -> None:
        """Deliver an update; one that was journalled before meets its validator now."""
        event = delivery.event
        assert isinstance(event, ev.UpdateReceived)
        number = delivery.number
        if delivery.was_received:
            refusal = self._validate(event)
            if refusal is not None:
                failure = failure_of(refusal, self._run._converter)
                self._run._outputs.append(ev.UpdateFailed(number, failure, rejected=True))
                return
        try:
            handler = self._handler("update", event.name)
            args, _ = handler.codec.decode_args(self._run._converter, event.args)
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
            self._run._outputs.append(ev.UpdateFailed(number, failure_of(error, self._run._converter)))

    async def _update_handler(self, number: int, handler: HandlerDefinition, coroutine: Any) -> None:
        try:
            result = handler.codec.encode_result(self._run._converter, await coroutine)
            self._run._outputs.append(ev.UpdateCompleted(number, result))
        except _NOT_ITS_OWN:
            raise
        except BaseException as error:  # noqa: BLE001  (R7: the caller gets it)
            self._run._outputs.append(ev.UpdateFailed(number, failure_of(error, self._run._converter)))
        finally:
            self.running -= 1

    def refused(self, delivery: Delivery, error: BaseException) -> ev.HandlerFailed | ev.UpdateFailed:
        """What becomes of a message when there is no object to handle it."""
        failure = failure_of(error, self._run._converter)
        if type(delivery.event) is ev.UpdateReceived:
            return ev.UpdateFailed(delivery.number, failure)
        return ev.HandlerFailed(delivery.number, failure)

    def _handler(self, kind: str, name: str) -> HandlerDefinition:
        handlers = self._run._definition.handlers[kind]
        handler = handlers.get(name)
        if handler is None:
            raise UnknownHandlerError(kind, name, self._run._definition.name, list(handlers))
        return handler

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
        self._run._reading_randoms = Randomness()
        try:
            handler = self._handler("update", event.name)
            if handler.validator is not None:
                args, _ = handler.codec.decode_args(self._run._converter, event.args)
                handler.validator(self._run._object, *args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (a refusal, whatever it is)
            return error
        finally:
            self._run.read_only = False
        return None

    def query(self, name: str, args: Sequence[Payload]) -> Payload:
        """Run a query's handler.

        Raises:
            UnknownHandlerError: There is none of this name.
            PayloadError: An argument or the result does not fit its hint, or has no stored form.
            QueryFailedError: It raised, also while a value was converted, or it tried to change the run.
        """
        handler = self._handler("query", name)
        self._run.read_only = True
        self._run._reading_randoms = Randomness()
        try:
            with self._run.loop:
                answer: Payload = self._run._context.copy().run(self._answer, handler, args)
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

    def _answer(self, handler: HandlerDefinition, args: Sequence[Payload]) -> Payload:
        values, _ = handler.codec.decode_args(self._run._converter, args)
        try:
            result = handler.fn(self._run._object, *values)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise QueryFailedError(f"query {handler.name!r} raised {_said(error)}") from error
        return handler.codec.encode_result(self._run._converter, result)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {safe_message(error)}"
