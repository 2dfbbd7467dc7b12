"""What has become of messages with a request id.

Those that are not in their table yet are kept in memory. They are known from the turn on that has received the message,
which may still be on its way to the disk.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .errors import JournalCorruptError
from .row_checksum import sealed, unsealed
from .store import JournalStore
from .tables import DEDUPE, text_hash


class Request(NamedTuple):
    """What a message with a request id has become.

    Attributes:
        run_key: The run that received it.
        event: Number of the event.
        digest: Of its kind, name and arguments.
    """

    run_key: int
    event: int
    digest: bytes


_REQUEST = struct.Struct(">QI")


class RequestIds:
    """The request ids of one journal."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._requests: dict[tuple[str, str], Request] = {}
        self._names: dict[int, list[tuple[str, str]]] = {}

    def reserve(self, workflow_id: str, request_id: str, request: Request) -> None:
        """Remember what a request id has become."""
        name = (workflow_id, request_id)
        self._requests[name] = request
        self._names.setdefault(request.run_key, []).append(name)

    def rows(self, run_key: int) -> list[tuple[bytes, bytes]]:
        """What is to be put into the table for a run.

        A message that a later run of the chain has taken over is that one's; the table may know that already.
        """
        names = self._names.get(run_key)
        if not names:
            return []
        names[:] = [name for name in names if name in self._requests]
        journal_id = self._store.journal_id
        return [(text_hash(journal_id, *name), encode_request(self._requests[name])) for name in names]

    def stored(self, run_key: int, count: int | None = None) -> None:
        """The first ``count`` request ids of a run, all by default, are in their table now."""
        names = self._names.get(run_key)
        if names:
            for name in names[:count]:
                request = self._requests.get(name)
                if request is not None and request.run_key == run_key:
                    del self._requests[name]
            del names[:count]
            if not names:
                del self._names[run_key]

    def find(self, workflow_id: str, request_id: str) -> Request | None:
        """What a request id has become, if it was seen within the window.

        Raises:
            JournalCorruptError: Its row is damaged.
        """
        found = self._requests.get((workflow_id, request_id))
        if found is None:
            key = text_hash(self._store.journal_id, workflow_id, request_id)
            with self._store.view() as tables:
                value = next((v for t in DEDUPE if (v := tables.get(t, key)) is not None), None)
            if value is not None:
                try:
                    found = decode_request(value)
                except JournalCorruptError as error:
                    raise JournalCorruptError(
                        f"what the request id {request_id!r} of workflow {workflow_id!r} has become "
                        f"cannot be read: {error}"
                    ) from error
        return found


def encode_request(request: Request) -> bytes:
    """Encode a row of the tables of request ids."""
    return sealed(_REQUEST.pack(request.run_key, request.event) + request.digest)


def decode_request(row: bytes) -> Request:
    """Decode a row of the tables of request ids.

    Raises:
        JournalCorruptError: It is damaged.
    """
    data = unsealed(row)
    if len(data) < _REQUEST.size:
        raise JournalCorruptError("a row of a request id is too short")
    run_key, event = _REQUEST.unpack_from(data)
    return Request(run_key, event, data[_REQUEST.size :])
