"""Task tokens: by which somebody outside completes an attempt; opaque text with the attempt's fence (R3) in it."""

from __future__ import annotations

import base64
import binascii

import msgspec


class TaskToken(msgspec.Struct, array_like=True, frozen=True):
    """Which attempt is meant.

    Attributes:
        workflow_id: Id of the workflow that called the activity.
        run_id: The run.
        command: Number of the call in the run.
        attempt: Number of the attempt; 0 is whichever is the present one.
    """

    workflow_id: str
    run_id: str
    command: int
    attempt: int

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(_encode(self)).decode("ascii")


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TaskToken).decode


def parse_token(text: str) -> TaskToken:
    """Read what ``str(TaskToken(...))`` gave.

    Raises:
        TypeError: It is no text.
        ValueError: It is no task token.
    """
    if not isinstance(text, str):
        raise TypeError(f"a task token is a str, not {text!r}")
    try:
        return _decode(base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True))
    except (UnicodeEncodeError, binascii.Error, msgspec.MsgspecError) as error:
        raise ValueError(
            f"{text[:40]!r} is no task token: pass activity.info().task_token as the activity got it"
        ) from error
