"""A message between runs as a document of plain JSON values and back, exactly; see ``run_document``.

A document has ``format``, ``version``, the ``sender`` (``workflow_id`` and ``run_id``, or null), the ``kind`` of the
message, and the fields of its stored form as ``message``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .errors import ImportRefusedError
from .run_document import plain, structured
from .run_messages import Answer, RunMessage, StartRun, ToRun

FORMAT = "everact message"
#: Raised when an older Everact could misread a document.
VERSION = 1

_KINDS: dict[str, type[RunMessage]] = {"start": StartRun, "to run": ToRun, "answer": Answer}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def message_document(sender: tuple[str, str] | None, message: RunMessage) -> dict[str, Any]:
    """Describe a message.

    Args:
        sender: Workflow id and run id of the run that has sent it, if known.
        message: What it says.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "sender": None if sender is None else {"workflow_id": sender[0], "run_id": sender[1]},
        "kind": _NAMES[type(message)],
        "message": plain(message),
    }


def message_of_document(document: Mapping[str, Any]) -> tuple[tuple[str, str] | None, RunMessage]:
    """Sender and message of a document.

    Raises:
        ImportRefusedError: It is damaged, or of a newer version.
    """
    if document.get("version") != VERSION:
        raise ImportRefusedError(
            f"an exported message has version {document.get('version')!r}, this Everact reads {VERSION}: "
            f"use a newer Everact"
        )
    try:
        sender = document["sender"]
        names = (
            None
            if sender is None
            else msgspec.convert((sender["workflow_id"], sender["run_id"]), tuple[str, str])
        )
        message: RunMessage = structured(_KINDS[document["kind"]], document["message"])
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise ImportRefusedError(f"an exported message is damaged: {error!r}") from error
    return names, message
