"""What runs say to each other: the bodies of the outbox's messages, in their stored form.

Payloads in them stand as they do in events, so behind the payload codecs. Tags and field order never change; a new
field goes to the end, with a default.
"""

from __future__ import annotations

import msgspec

from .event_base import ParentRecord, WorkflowStarted
from .events import AnyEvent


class StartRun(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="s"):
    """Start a run.

    Attributes:
        started: Its first event; the parent in it gets the answer and the news of its end.
        sender: Whom a detached start answers; None when it is a child's.
        if_running: What to do when the id is running.
        if_closed: What to do when it has ended.
        awaits_start: The parent wants to hear that the child exists.
    """

    started: WorkflowStarted
    sender: ParentRecord | None = None
    if_running: str = "fail"
    if_closed: str = "allow"
    awaits_start: bool = False


class ToRun(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="r"):
    """A signal, a request to cancel, or a terminate, for a run.

    Attributes:
        workflow_id: Its workflow id.
        run_id: Its run id; empty for the newest of the workflow id.
        event: What it receives.
        child_of: Only if it is this child.
        sender: Who hears what became of it; None for nobody.
    """

    workflow_id: str
    run_id: str
    event: AnyEvent
    child_of: ParentRecord | None = None
    sender: ParentRecord | None = None


class Answer(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="a"):
    """What a run has asked or waited for: news of a child, what became of a message.

    Attributes:
        workflow_id: Of the run that gets it.
        run_id: That very run.
        event: What it hears.
    """

    workflow_id: str
    run_id: str
    event: AnyEvent


RunMessage = StartRun | ToRun | Answer

encode_message = msgspec.msgpack.Encoder().encode
_decode: msgspec.msgpack.Decoder[RunMessage] = msgspec.msgpack.Decoder(StartRun | ToRun | Answer)


def decode_message(body: bytes) -> RunMessage:
    """Decode the body of a message.

    Raises:
        msgspec.DecodeError: The bytes are no message of this format.
    """
    return _decode.decode(body)
