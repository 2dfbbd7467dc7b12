"""The part of the JSON API that is about attempts: whoever works on one outside completes it, by its task token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..actors.activity_handles import meant_token
from ..actors.activity_pool import CANCELLED
from ..actors.call_errors import ActivityNotPendingError
from ..actors.completion_tokens import TaskToken
from ..actors.definitions import ActivityDefinition
from ..actors.failure_conversion import error_of
from ..actors.mailbox import OUTCOMES
from ..actors.runtime import Runtime
from ..journal import events as ev
from ..journal.errors import EveractError
from ..journal.failures import CAUSE_LIMIT, FAILURE_LIMIT, Failure
from ..journal.payloads import Payload
from ..journal.run_document import structured
from .calls import Call, RefusedError
from .wire import SAFE_ENCODINGS, Raw, payload_of

#: What a failure may say of its kind; the same words as those of errors that are passed in the program itself.
_KINDS = frozenset(["application", "activity", "timeout", "cancelled", "lost", "child", "crash"])


class Attempt(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which attempt is meant.

    Attributes:
        task_token: ``activity.info().task_token`` of it.
        workflow_id: Instead, the id of the workflow that called the activity,
        command: the number of the call in the run,
        run_id: and the run; default: the newest.
        repeated: This call was sent before, and whether it was done is not known: if the attempt has ended in just
            this way, that is a yes.
    """

    task_token: str | None = None
    workflow_id: str | None = None
    command: int | None = None
    run_id: str | None = None
    repeated: bool = False

    @property
    def token(self) -> TaskToken:
        """It as a token."""
        try:
            return meant_token(self.task_token, self.workflow_id, self.command, self.run_id)
        except TypeError as error:
            raise RefusedError(400, str(error).replace("activity_handle()", "the body of the call")) from None


class Completion(Attempt):
    """Body of a completion.

    Attributes:
        result: What the activity gives.
        extra_fields: Take objects with fields that their classes here do not have: their classes were others there.
    """

    result: Raw
    extra_fields: bool = False


class Failing(Attempt):
    """Body of a failure: ``type``, ``message``, and what else ``Failure`` has."""

    failure: dict[str, Any]


class Beat(Attempt):
    """Body of a heartbeat."""

    details: list[Raw] = []


async def complete(runtime: Runtime, call: Call) -> None:
    """The activity has this result."""
    body = await call.body(Completion)
    token = body.token
    payload = payload_of(body.result)
    shard = runtime._open()
    pending = shard.find(token.workflow_id, token.run_id or None).state.activities.get(token.command)
    definition = None if pending is None else shard.activities.get(pending.scheduled.activity_type)
    value = _value(runtime, definition, payload, extra_fields=body.extra_fields)
    await _ending(runtime, body, runtime.activity_handle(str(token)).complete(value), payload)


def _value(
    runtime: Runtime, definition: ActivityDefinition | None, payload: Payload, *, extra_fields: bool = True
) -> Any:
    """The result of an activity that came from another process."""
    converter = runtime._converter
    if definition is None:
        return converter.decode(payload, where="result of the activity")
    return definition.codec.result_value(converter, payload, extra_fields=extra_fields)


async def fail(runtime: Runtime, call: Call) -> None:
    """The attempt has failed."""
    body = await call.body(Failing)
    failure = _failure(body.failure)
    error = error_of(failure, runtime._converter)
    await _ending(runtime, body, runtime.activity_handle(str(body.token)).fail(error), failure)


async def report_cancelled(runtime: Runtime, call: Call) -> None:
    """The activity has stopped without a result."""
    body = await call.body(Attempt)
    await _ending(runtime, body, runtime.activity_handle(str(body.token)).report_cancelled(), CANCELLED)


async def heartbeat(runtime: Runtime, call: Call) -> None:
    """The activity is alive, and has come so far."""
    body = await call.body(Beat)
    details = [runtime._converter.decode(payload_of(one), where="heartbeat detail") for one in body.details]
    await runtime.activity_handle(str(body.token)).heartbeat(*details)


Serve = Callable[[Runtime, Call], Awaitable[None]]

VERBS: dict[str, Serve] = {
    "complete": complete,
    "fail": fail,
    "report-cancelled": report_cancelled,
    "heartbeat": heartbeat,
}


def _failure(document: dict[str, Any]) -> Failure:
    """The failure that a caller describes, checked: it may be the work of any program.

    Raises:
        RefusedError: It is none.
    """
    try:
        failure: Failure = structured(Failure, document)
        wrong = _wrong_in(failure)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, msgspec.MsgspecError) as error:
        raise _unfit(str(error) or type(error).__name__) from None
    if wrong:
        raise _unfit(wrong)
    return failure


def _unfit(why: str) -> RefusedError:
    return RefusedError(400, f"the failure in the body of the call does not fit: {why}")


def _wrong_in(failure: Failure) -> str:
    """Why a failure cannot be taken; empty when it can."""
    count, deepest = 0, 0
    left = [(failure, 0)]
    while left:
        one, depth = left.pop()
        count, deepest = count + 1, max(deepest, depth)
        if one.kind not in _KINDS or one.coded is not None:
            return f"its kind must be one of {', '.join(sorted(_KINDS))}, not {one.kind!r}"
        if not all(detail.encoding in SAFE_ENCODINGS for detail in one.details):
            return f"a detail must have one of the encodings {', '.join(sorted(SAFE_ENCODINGS))}"
        left += [(inner, depth + 1) for inner in one.inner()]
    if count > FAILURE_LIMIT or deepest > CAUSE_LIMIT:
        return f"at most {FAILURE_LIMIT} errors, {CAUSE_LIMIT} deep, are kept"
    return ""


async def _ending(
    runtime: Runtime, body: Attempt, ending: Awaitable[None], outcome: Payload | Failure
) -> None:
    """End an attempt; of a call that comes again, once."""
    try:
        await ending
    except ActivityNotPendingError as error:
        if not body.repeated or not await _ended_so(runtime, error, outcome):
            raise


async def _ended_so(runtime: Runtime, error: ActivityNotPendingError, outcome: Payload | Failure) -> bool:
    """Whether the attempt has ended with just this outcome."""
    handle = runtime.ref(error.workflow_id)
    handle.run_id = error.run_id
    try:
        history = await handle.fetch_history()
    except EveractError:
        return False
    activity_type = ""
    for found in history.events:
        event: Any = found.event
        if type(event) is ev.ActivityScheduled:
            if event.command == error.command:
                activity_type = event.activity_type
            continue
        if type(event) not in OUTCOMES or (event.command, event.attempt) != (error.command, error.attempt):
            continue
        if isinstance(outcome, Payload):
            return type(event) is ev.ActivityCompleted and _same_result(
                runtime, activity_type, outcome, event.result
            )
        if outcome is CANCELLED and type(event) is ev.ActivityCancelled:
            return True
        failures = [getattr(event, "failure", None)]
        failures += [one.cause for one in failures if one is not None]
        said = (outcome.type, outcome.message, outcome.details)
        return any(one is not None and (one.type, one.message, one.details) == said for one in failures)
    return False


def _same_result(runtime: Runtime, activity_type: str, given: Payload, stored: Payload) -> bool:
    """Whether two results of an activity are the same value; what has defaults may be written out or not."""
    definition = runtime._registry.activities.get(activity_type)
    try:
        return given == stored or bool(
            _value(runtime, definition, given) == _value(runtime, definition, stored)
        )
    except Exception:  # noqa: BLE001  (it does not fit its hint, or the user's __eq__ raises)
        return False
