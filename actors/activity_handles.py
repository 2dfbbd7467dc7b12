"""Attempts that somebody outside completes: what a task token, or the ids of the call, are good for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, overload

from ..journal import events as ev
from ..journal.failures import Failure
from ..journal.fold import PendingActivity, RunState
from ..journal.payloads import PayloadConverter
from ..journal.writer import Raise
from .activity_pool import CANCELLED, ActivityPoolInfo
from .call_errors import ActivityNotPendingError
from .completion_tokens import TaskToken, parse_token
from .errors import ActivityCancelledError
from .failure_conversion import failure_of, with_source
from .mailbox import Inspection
from .options import check_text, check_workflow_id, positive_count

if TYPE_CHECKING:
    from .shard import Shard
    from .workflow_actor import WorkflowActor


class Completer(Protocol):
    """Does for handles what they are asked for: here in the runtime's process, elsewhere through its door."""

    async def complete(self, token: TaskToken, result: Any) -> None:
        """The activity has this result."""

    async def fail(self, token: TaskToken, failure: Failure) -> None:
        """The attempt has failed."""

    async def report_cancelled(self, token: TaskToken) -> None:
        """The activity has stopped without a result."""

    async def heartbeat(self, token: TaskToken, details: tuple[Any, ...]) -> None:
        """The activity is alive, and has come so far."""


class AsyncActivityHandle:
    """Completes an attempt whose code has ended with ``activity.raise_complete_async()``, or still runs.

    Each call returns once what it says is durable. ``complete``, ``fail`` and ``report_cancelled`` end the attempt:
    after a ``CommitUnknownError`` repeat the call, and take ``ActivityNotPendingError`` as a yes.
    """

    def __init__(self, completer: Completer, converter: PayloadConverter, token: TaskToken) -> None:
        self._completer = completer
        self._converter = converter
        self._token = token

    def __repr__(self) -> str:
        token = self._token
        return f"<AsyncActivityHandle of command {token.command} of workflow {token.workflow_id!r}>"

    async def complete(self, result: Any = None) -> None:
        """The activity has this result.

        Raises:
            ActivityNotPendingError: Nobody waits for it any more; nothing was written.
            WorkflowNotFoundError: The journal has no such run.
            PayloadEncodeError: The result does not fit the activity's hint, or has no stored form.
            CommitUnknownError: Whether it is durable is unknown.
        """
        await self._completer.complete(self._token, result)

    async def fail(self, error: BaseException) -> None:
        """The attempt has failed; its retry policy decides whether there is another one.

        Raises:
            ActivityNotPendingError: Nobody waits for it any more; nothing was written.
            WorkflowNotFoundError: The journal has no such run.
            CommitUnknownError: Whether it is durable is unknown.
        """
        if not isinstance(error, BaseException):
            raise TypeError(f"fail() takes the error itself, not {error!r}")
        await self._completer.fail(self._token, failure_of(error, self._converter))

    async def report_cancelled(self) -> None:
        """The activity has stopped without a result.

        Where the workflow has asked for that and waits, its call ends cancelled; else it fails for good.

        Raises:
            ActivityNotPendingError: Nobody waits for it any more; nothing was written.
            WorkflowNotFoundError: The journal has no such run.
            CommitUnknownError: Whether it is durable is unknown.
        """
        await self._completer.report_cancelled(self._token)

    async def heartbeat(self, *details: Any) -> None:
        """The activity is alive, and has come so far; details are durable when this returns.

        Raises:
            ActivityCancelledError: The workflow has asked it to stop: call ``report_cancelled``.
            ActivityNotPendingError: Nobody waits for it any more; nothing was written.
            WorkflowNotFoundError: The journal has no such run.
            PayloadEncodeError: A detail has no stored form.
            PayloadTooLargeError: The details are over the limit.
            CommitUnknownError: Whether the details are durable is unknown.
        """
        await self._completer.heartbeat(self._token, details)


def meant_token(
    task_token: str | None, workflow_id: str | None, command: int | None, run_id: str | None
) -> TaskToken:
    """Which attempt a caller means; errors as of ``activity_handle``."""
    if task_token is not None:
        if workflow_id is not None or command is not None or run_id is not None:
            raise TypeError("activity_handle() takes a task token or the ids, not both")
        return parse_token(task_token)
    if workflow_id is None or command is None:
        raise TypeError("activity_handle() needs a task token, or workflow_id and command")
    return TaskToken(
        check_workflow_id(workflow_id),
        "" if run_id is None else check_text("run_id", run_id),
        positive_count("command", command),
        0,
    )


class ActivityCompleter:
    """Completes attempts of the runs of one shard."""

    def __init__(self, open_shard: Callable[[], Shard], converter: PayloadConverter) -> None:
        self._open = open_shard
        self._converter = converter

    async def complete(self, token: TaskToken, result: Any) -> None:
        """See ``AsyncActivityHandle.complete``."""
        actor, pending, reply = await self._find(token)
        name = pending.scheduled.activity_type
        definition = actor.shard.activities.get(name)
        if definition is None:
            payload = self._converter.encode(result, where=f"result of activity {name}")
        else:
            payload = definition.codec.encode_result(self._converter, result)
        actor.shard.dispatcher.complete(actor, pending, payload, reply)
        await reply

    async def fail(self, token: TaskToken, failure: Failure) -> None:
        """See ``AsyncActivityHandle.fail``."""
        actor, pending, reply = await self._find(token)
        if failure.kind != "timeout":
            failure = with_source(failure, *_source(pending))
        actor.shard.dispatcher.complete(actor, pending, failure, reply)
        await reply

    async def report_cancelled(self, token: TaskToken) -> None:
        """See ``AsyncActivityHandle.report_cancelled``."""
        actor, pending, reply = await self._find(token)
        failure = with_source(CANCELLED, *_source(pending))
        actor.shard.dispatcher.complete(actor, pending, failure, reply)
        await reply

    async def heartbeat(self, token: TaskToken, details: tuple[Any, ...]) -> None:
        """See ``AsyncActivityHandle.heartbeat``."""
        actor, pending, reply = await self._find(token)
        command = pending.scheduled.command
        attempt = actor.attempts.get(command)
        if attempt is not None:
            actor.shard.dispatcher.pool.beat(attempt, ())
        if details:
            encode = self._converter.encode
            payloads = tuple(
                encode(detail, where=f"heartbeat detail {number}") for number, detail in enumerate(details, 1)
            )
            event = ev.AttemptNoted(command, pending.attempt, payloads)
            if actor.shard.coder is None:
                actor.shard.sizes.check_event(event, actor.about)
            if attempt is not None:
                attempt.details = attempt.noted = payloads
            actor.put(event, reply)
            await reply
        if pending.cancel in ev.WAITING:
            await _look(actor, partial(_ask_to_stop, actor, token))

    async def _find(self, token: TaskToken) -> tuple[WorkflowActor, PendingActivity, asyncio.Future[Any]]:
        """The run, the activity that it waits for, and a future for the answer."""
        shard = self._open()
        while True:
            actor = shard.find(token.workflow_id, token.run_id or None)
            pending = _meant(actor.state, token)
            if pending is not None and token.command not in actor.outcomes:
                return actor, pending, shard.loop.create_future()
            # Its end may be in the mailbox still, or in a turn that a failed commit takes back.
            await _look(actor, partial(_refuse_ended, actor, token))


def _meant(state: RunState, token: TaskToken) -> PendingActivity | None:
    """The activity that a token is about, if the run waits for that attempt."""
    pending = state.activities.get(token.command)
    return pending if pending is not None and token.attempt in (0, pending.attempt) else None


def _refuse_ended(actor: WorkflowActor, token: TaskToken, state: RunState) -> Raise | None:
    if _meant(state, token) is not None:
        return None
    return Raise(ActivityNotPendingError(actor.workflow_id, actor.run_id, token.command, token.attempt))


def _ask_to_stop(actor: WorkflowActor, token: TaskToken, state: RunState) -> Raise | None:
    pending = _meant(state, token)
    if pending is None:
        return _refuse_ended(actor, token, state)
    if pending.cancel not in ev.WAITING:
        return None
    return Raise(
        ActivityCancelledError(
            f"workflow {actor.workflow_id!r} has asked activity {pending.scheduled.activity_type!r} to stop: end the "
            f"work, then call report_cancelled()"
        )
    )


async def _look(actor: WorkflowActor, read: Callable[[RunState], Raise | None]) -> None:
    """Let the run answer from what it is once all has been handled that came in before, when that is durable (R5).

    It is the state at that time that answers: a failed commit may have taken back what the caller has seen.
    """
    reply: asyncio.Future[Any] = actor.shard.loop.create_future()
    actor.put(Inspection(read), reply)
    await reply


def _source(pending: PendingActivity) -> tuple[str, int, int]:
    return pending.scheduled.activity_type, pending.scheduled.command, pending.attempt


class ActivityAccess:
    """The part of a runtime, or of a client, that is about attempts."""

    def _completes(self) -> tuple[Completer, PayloadConverter]:
        """What does for handles what they are asked for, and how values are stored."""
        raise NotImplementedError

    @overload
    def activity_handle(self, task_token: str, /) -> AsyncActivityHandle: ...
    @overload
    def activity_handle(
        self, /, *, workflow_id: str, command: int, run_id: str | None = None
    ) -> AsyncActivityHandle: ...
    def activity_handle(
        self,
        task_token: str | None = None,
        /,
        *,
        workflow_id: str | None = None,
        command: int | None = None,
        run_id: str | None = None,
    ) -> AsyncActivityHandle:
        """A handle to complete an attempt from outside; whether it is pending shows when it is used.

        Args:
            task_token: ``activity.info().task_token`` of that attempt: a later one does not take it.
            workflow_id: Instead of the token, the id of the workflow that called the activity,
            command: ``activity.info().command``; whichever attempt is the present one is meant,
            run_id: and the run; None is the newest.

        Raises:
            TypeError: Neither or both are given, or they are of the wrong type.
            ValueError: The text is no task token.
        """
        token = meant_token(task_token, workflow_id, command, run_id)
        return AsyncActivityHandle(*self._completes(), token)


class OwnActivityAccess(ActivityAccess):
    """That part of a runtime."""

    _open: Callable[[], Shard]
    _converter: PayloadConverter

    def _completes(self) -> tuple[Completer, PayloadConverter]:
        return ActivityCompleter(self._open, self._converter), self._converter

    def activity_slots(self) -> ActivityPoolInfo:
        """How many activities run and wait for a slot just now, and which threads were given up."""
        return self._open().dispatcher.pool.describe()
