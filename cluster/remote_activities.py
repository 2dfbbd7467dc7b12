"""Completing attempts in another process than their runtime: what ``ActivityCompleter`` does, through a connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..actors.activity_handles import ActivityAccess
from ..actors.call_errors import ActivityNotPendingError
from ..actors.completion_tokens import TaskToken
from ..actors.descriptions import WorkflowDescription
from ..journal.failures import Failure
from ..journal.payloads import PayloadConverter
from ..journal.run_document import plain
from .connection import Connection
from .remote import with_classes

if TYPE_CHECKING:
    from .remote import RemoteMessenger


class RemoteCompleter:
    """Completes attempts through a connection; a call that is sent twice is done once."""

    def __init__(self, connection: Connection, messenger: RemoteMessenger) -> None:
        self._connection = connection
        self._messenger = messenger

    async def complete(self, token: TaskToken, result: Any) -> None:
        """See ``AsyncActivityHandle.complete``."""
        value = self._messenger.encoded_one(result, "result of the activity")
        typed = isinstance(result, dict) or not self._messenger.has_objects
        await self._end("complete", token, {"result": value, **with_classes(not typed)})

    async def fail(self, token: TaskToken, failure: Failure) -> None:
        """See ``AsyncActivityHandle.fail``."""
        await self._end("fail", token, {"failure": plain(failure)})

    async def report_cancelled(self, token: TaskToken) -> None:
        """See ``AsyncActivityHandle.report_cancelled``."""
        await self._end("report-cancelled", token, {})

    async def heartbeat(self, token: TaskToken, details: tuple[Any, ...]) -> None:
        """See ``AsyncActivityHandle.heartbeat``."""
        values = [
            self._messenger.encoded_one(detail, f"heartbeat detail {number}")
            for number, detail in enumerate(details, 1)
        ]
        await self._connection.call(
            "POST", "activities", "heartbeat", body={"task_token": str(token), "details": values}
        )

    async def _end(self, verb: str, token: TaskToken, body: Mapping[str, Any]) -> None:
        """End an attempt."""
        if not token.attempt:
            token = await self._present(token)
        body = {"task_token": str(token), **body}
        sent = 0

        def note() -> None:
            nonlocal sent
            sent += 1

        try:
            await self._connection.call("POST", "activities", verb, body=body, sending=note, repeat={})
        except ActivityNotPendingError:
            if sent < 2:
                raise
            # Perhaps the first sending has ended it, and only its answer was lost: the journal knows.
            await self._connection.call(
                "POST", "activities", verb, body={**body, "repeated": True}, repeat={}
            )

    async def _present(self, token: TaskToken) -> TaskToken:
        """The token of the present attempt: sent twice without a number, a failure would hit the next one too."""
        query = {"run_id": token.run_id or None}
        data = await self._connection.call("GET", "workflows", token.workflow_id, query=query)
        seen = self._connection.read(data, WorkflowDescription)
        attempts = {one.command: one.attempt for one in seen.pending_activities}
        return msgspec.structs.replace(
            token, run_id=seen.run_id, attempt=attempts.get(token.command, token.attempt)
        )


class RemoteActivityAccess(ActivityAccess):
    """The part of a client that is about attempts."""

    _connection: Connection
    _messenger: Any

    def _completes(self) -> tuple[RemoteCompleter, PayloadConverter]:
        return RemoteCompleter(self._connection, self._messenger), self._messenger.converter
