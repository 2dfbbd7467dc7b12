"""What travels between processes, as JSON: values, errors, histories. Nothing here builds a class that data names.

A *value* is the JSON that the journal stores for it, so that type hints read it on either side: plain JSON where a
hint says the types, the tagged form (``{"$datetime": "..."}``) where none does. ``bytes`` are ``{"$bytes": base64}``.
What is stored as a pickle does not travel.

An *error* is an object with its class name ``type``, its text ``message``, the constructor's arguments ``args``, and
its cause as a stored ``failure``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..actors import addresses, call_errors, child_errors, context, event_loop
from ..actors import errors as actor_errors
from ..actors.descriptions import History, WorkflowDescription, WorkflowSummary
from ..actors.failure_conversion import error_of, failure_of
from ..journal import errors as journal_errors
from ..journal.errors import EveractError, PayloadEncodeError
from ..journal.failures import Failure, safe_message
from ..journal.payloads import NULL, Payload, PayloadConverter
from ..journal.run_document import plain, record_document, structured
from . import errors

Raw = msgspec.Raw

to_json = msgspec.json.Encoder().encode
from_json = msgspec.json.Decoder().decode

#: Stored forms of values that a caller in another process may hand in.
SAFE_ENCODINGS = frozenset(["json", "tagged", "null", "raw"])
#: The errors that a caller in another process gets as what they are.
ERRORS: Mapping[str, type[Exception]] = {
    name: cls
    for module in (
        journal_errors,
        actor_errors,
        call_errors,
        child_errors,
        addresses,
        context,
        event_loop,
        errors,
    )
    for name, cls in vars(module).items()
    if isinstance(cls, type) and issubclass(cls, EveractError)
} | {cls.__name__: cls for cls in (TypeError, ValueError, TimeoutError, ImportError)}

#: Status of an answer by the error in it; an error is as its nearest base class here.
_STATUS: dict[type[Exception], int] = {
    TypeError: 400,
    ValueError: 400,
    ImportError: 400,  # an option needs a package that is not there
    journal_errors.PayloadError: 400,
    actor_errors.RegistrationError: 400,
    errors.CallRefusedError: 400,
    call_errors.WorkflowNotFoundError: 404,
    actor_errors.WorkflowNotRegisteredError: 404,
    actor_errors.UnknownHandlerError: 404,
    call_errors.NoDeadLetterError: 404,
    call_errors.ActivityNotPendingError: 409,
    actor_errors.ActivityCancelledError: 409,
    call_errors.WorkflowAlreadyStartedError: 409,
    call_errors.WorkflowClosedError: 409,
    call_errors.WorkflowTypeError: 409,
    call_errors.WorkflowStatusError: 409,
    call_errors.WorkflowBacklogFullError: 429,
    call_errors.RequestIdReusedError: 409,
    actor_errors.WorkflowQuarantinedError: 409,
    actor_errors.WorkflowHeldError: 409,
    actor_errors.WorkflowFailedError: 422,
    actor_errors.UpdateRejectedError: 422,
    actor_errors.UpdateFailedError: 422,
    actor_errors.UpdateCutError: 422,
    actor_errors.QueryFailedError: 422,
    actor_errors.RuntimeClosedError: 503,
    journal_errors.CommitUnknownError: 503,
    journal_errors.JournalAccessError: 503,
    journal_errors.JournalFullError: 507,
    TimeoutError: 504,
}


# --- values


def value_of(payload: Payload, where: str = "") -> Raw:
    """A stored value as it travels.

    Raises:
        PayloadEncodeError: It is a pickle.
    """
    if payload.encoding in ("json", "tagged"):
        return Raw(payload.data)
    if payload.encoding == "null":
        return Raw(b"null")
    if payload.encoding == "raw":
        return Raw(to_json({"$bytes": base64.b64encode(payload.data).decode("ascii")}))
    raise PayloadEncodeError(
        f"has the stored form {payload.encoding!r}, which only its own program reads: other processes get what is "
        f"stored as JSON, without a payload codec",
        where,
    )


def payload_of(value: Raw) -> Payload:
    """A value that has travelled, as it is decoded by type hint."""
    data = bytes(value).strip()
    if data == b"null":
        return NULL
    return Payload("tagged" if b'"$' in data else "json", data)


# --- what is known of runs


def summary_document(seen: WorkflowSummary) -> dict[str, Any]:
    """A line of a list, or a description, as it travels."""
    # A value of the user's, in the memo or published, may be of any class where pickles are trusted.
    document: dict[str, Any] = msgspec.to_builtins(seen, enc_hook=repr)
    if isinstance(seen, WorkflowDescription):
        document["waiting_on"] = seen.waiting_on
    return document


def history_head(history: History) -> bytes:
    """The beginning of a history as it travels; its records follow, a comma between them, then ``]}``."""
    return to_json({"workflow_id": history.workflow_id, "run_id": history.run_id})[:-1] + b',"records":['


def history_rows(history: History) -> Iterator[dict[str, Any]]:
    """The records of a history as they travel, each with its time in microseconds."""
    for at, record in history.records:
        yield {"at": at, **record_document(record)}


# --- errors


def error_document(error: BaseException, converter: PayloadConverter) -> dict[str, Any]:
    """An error as it travels."""
    cls = next((c for c in type(error).__mro__ if ERRORS.get(c.__name__) is c), None)
    document: dict[str, Any] = {"type": cls.__name__ if cls else "CallRefusedError"}
    document["message"] = safe_message(error) if cls else f"{type(error).__name__}: {safe_message(error)}"
    if cls is type(error):
        try:
            to_json(error.args)
        except (TypeError, ValueError, msgspec.MsgspecError):
            pass  # of a class of the user: the text says it
        else:
            document["args"] = error.args
    if error.__cause__ is not None:
        document["failure"] = plain(failure_of(error.__cause__, converter))
    return document


def status_of(error: BaseException) -> int:
    """The HTTP status for an error; 500 for one that is nobody's fault but ours."""
    return next((_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS), 500)


def error_from(document: Any, converter: PayloadConverter) -> Exception:
    """The error that has travelled, of its class and with its text."""
    if not isinstance(document, dict) or not isinstance(document.get("message"), str):
        return errors.CallRefusedError(f"the program answered with an error of an unknown form: {document!r}")
    error = _rebuilt(str(document.get("type")), document["message"], document.get("args"))
    if "failure" in document:
        try:
            failure: Failure = structured(Failure, document["failure"])
            error.__cause__ = error_of(failure, converter)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            msgspec.MsgspecError,
            EveractError,
        ) as broken:
            error.add_note(f"(its cause cannot be read: {broken!r})")
    return error


def _rebuilt(name: str, message: str, args: Any) -> Exception:
    cls = ERRORS.get(name)
    if cls is None:
        return errors.CallRefusedError(f"{name}: {message}")
    given = args if isinstance(args, list) else [message]
    for tried in (given, map(_as_tuple, given), [message]):
        try:
            error = cls(*tried)
            if str(error) == message:
                return error
        except Exception:  # noqa: BLE001, S112  (arguments of another version: the text is what counts)
            continue
    return errors.CallRefusedError(f"{name}: {message}")


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
