"""Addresses of workflow actors: ``everact://<cluster>/<workflow id>[/<run id>]``, each part percent-encoded."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

from ..journal.errors import EveractError

SCHEME = "everact://"


class AddressError(EveractError, ValueError):
    """The text is no address, or names another cluster."""


class Address(NamedTuple):
    """Where a workflow actor is found.

    Attributes:
        cluster: Name of the runtime or cluster.
        workflow_id: Its id.
        run_id: One run of it; None is the newest.
    """

    cluster: str
    workflow_id: str
    run_id: str | None = None

    def __str__(self) -> str:
        parts = [self.cluster, self.workflow_id] + ([self.run_id] if self.run_id else [])
        return SCHEME + "/".join(quote(part, safe="") for part in parts)


def parse_address(text: str) -> Address:
    """Read an address.

    Raises:
        AddressError: It is none.
    """
    parts = text.removeprefix(SCHEME).split("/")
    if not text.startswith(SCHEME) or len(parts) not in (2, 3) or not all(parts):
        raise AddressError(
            f"{text!r} is no address: it must look like everact://cluster/workflow-id[/run-id]"
        )
    try:
        cluster, workflow_id, *run_id = (unquote(part, errors="strict") for part in parts)
    except UnicodeDecodeError:
        raise AddressError(f"{text!r} is no address: a percent-encoded part is not valid UTF-8") from None
    return Address(cluster, workflow_id, run_id[0] if run_id else None)
