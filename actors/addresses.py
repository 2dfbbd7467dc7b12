"""Addresses of workflow actors: ``everact://<cluster>/<workflow id>[/<run id>]``, each part percent-encoded."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

from ..journal.errors import EveractError
from .options import check_workflow_id

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


def address_of(workflow: str, cluster: str) -> Address:
    """What a caller in this cluster means by a workflow id, or by an address.

    Raises:
        AddressError: It is no address, or one of another cluster.
        TypeError: It is no text.
        ValueError: The id is empty or too long.
    """
    if not isinstance(workflow, str) or not workflow.startswith(SCHEME):
        return Address(cluster, check_workflow_id(workflow))
    address = parse_address(workflow)
    if address.cluster != cluster:
        raise AddressError(f"address {workflow!r} is of cluster {address.cluster!r}; this is {cluster!r}")
    check_workflow_id(address.workflow_id)
    return address
