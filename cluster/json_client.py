"""A client that speaks JSON: arguments and results are the JSON texts that travel, for callers without the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..actors.call_codec import CallCodec
from ..actors.handles import ActorRef
from .client import Client
from .remote import RemoteMessenger
from .wire import Raw


class JsonMessenger(RemoteMessenger):
    """Passes values on as they are."""

    has_objects = False

    def encoded(self, codec: CallCodec | None, args: Sequence[Any], where: str) -> list[Raw]:  # noqa: ARG002
        """The arguments, which are JSON texts already; the program converts them by its type hints."""
        return [self.encoded_one(arg, where) for arg in args]

    def encoded_one(self, value: Any, where: str) -> Raw:  # noqa: ARG002
        """A value, which is JSON text already."""
        return value if isinstance(value, Raw) else Raw(value)

    def value(self, codec: CallCodec | None, value: Raw, where: str) -> Any:  # noqa: ARG002
        """The JSON text of a value."""
        return value


class _Published(msgspec.Struct):
    """What a run has published, as it travels."""

    published: dict[str, Raw]


class JsonClient(Client):
    """A ``Client`` whose arguments and results are ``msgspec.Raw``."""

    _make_messenger = JsonMessenger

    async def published(self, run: ActorRef[Any]) -> dict[str, Raw]:
        """What a run has published, by key."""
        data = await self._connection.call(
            "GET", "workflows", run.workflow_id, "published", query={"run_id": run.run_id}
        )
        return self._connection.read(data, _Published).published
