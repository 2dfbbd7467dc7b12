"""Starting runs: what the options decide when the workflow id is taken, and repeats by request id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.payloads import Payload, total_size
from ..journal.writer import Raise
from .call_errors import (
    RequestIdReusedError,
    WorkflowAlreadyStartedError,
    WorkflowPurgedError,
    WorkflowTypeError,
)
from .definitions import WorkflowDefinition
from .mailbox import Inspection
from .memos import Memo
from .options import IfClosed, IfRunning
from .repeats import is_same
from .restarts import hold_until_begin
from .start_options import NOTHING, Carried
from .start_policies import decide as decide_start
from .workflow_actor import WorkflowActor

if TYPE_CHECKING:
    from .shard import Shard


def start_run(
    shard: Shard,
    definition: WorkflowDefinition,
    workflow_id: str,
    args: tuple[Payload, ...],
    memo: Memo,
    *,
    carried: Carried = NOTHING,
    is_new_id: bool,
    if_running: IfRunning,
    if_closed: IfClosed,
    request_id: str,
    digest: bytes,
    headers: tuple[ev.Header, ...] = (),
) -> tuple[WorkflowActor, asyncio.Future[Any]]:
    """Start a run, or find the one that the options ask for.

    ``carried`` is what the events of the run carry of the options; ``is_new_id`` says that the id was made for this
    start, so that no run has it.

    Returns:
        The run, and a future that is done once the answer is durable.

    Raises:
        PayloadTooLargeError: The arguments are over the limit; nothing was written.
    """
    shard.check()
    future = shard.loop.create_future()
    if request_id:
        repeated = _started_by(shard, workflow_id, request_id, digest, name=definition.name, args=args)
        if repeated is not None:
            actor, known = repeated
            same = is_same(shard, known, digest, kind="start", name=definition.name, args=args)
            value = None if same else Raise(RequestIdReusedError(request_id, workflow_id))
            _answer_start(actor, future, value)
            return actor, future
    current = shard.newest.get(workflow_id)
    row = shard.index.find(workflow_id) if current is None and not is_new_id else None
    status = row.status if row is not None else current.state.status if current is not None else None
    decision = decide_start(status, if_running, if_closed)
    if row is not None and decision != "start":  # what has ended before is not read for another start
        current = shard.actor_of(row)
    if current is not None and decision == "attach":
        kind = current.state.started.workflow_type
        if kind != definition.name:
            _answer_start(current, future, Raise(WorkflowTypeError(workflow_id, kind, definition.name)))
            return current, future
    if current is not None and decision in ("attach", "refuse"):
        refusal = WorkflowAlreadyStartedError(workflow_id, current.run_id, current.state.status)
        _answer_start(current, future, Raise(refusal) if decision == "refuse" else None)
        return current, future
    started = ev.WorkflowStarted(
        workflow_id,
        shard.new_id(),
        definition.name,
        args,
        request_id,
        digest,
        *memo,
        headers,
        options=carried.options,
        begins_at=carried.begins_at,
    )
    actor = WorkflowActor(shard, shard.next_key, workflow_id, definition)
    if carried.begins_at:
        hold_until_begin(actor)
    size = total_size(args) + total_size(memo[1])
    if headers:
        size += total_size(header.value for header in headers)
    if size > shard.sizes.quick and shard.coder is None:
        shard.sizes.check_event(started, actor.about)
    shard.intake.admit(size)
    actor.replaces = current if decision == "replace" else None
    shard.next_key += 1
    actor.state.started = started  # known by its ids from here on; the fold sets it again
    shard.actors[actor.key] = actor
    shard.newest[workflow_id] = actor
    if request_id:
        shard.starts[workflow_id, request_id] = actor
    actor.put(started, future)
    return actor, future


def _begun_by(shard: Shard, workflow_id: str, request_id: str) -> WorkflowActor | None:
    """The newest run of an id, if this request has started the first run of its chain."""
    row = shard.index.find(workflow_id)
    newest = shard.newest.get(workflow_id) or (None if row is None else shard.actor_of(row))
    chain = None if newest is None else newest.state.started.chain
    return newest if chain is not None and chain.request_id == request_id else None


def _answer_start(actor: WorkflowActor, future: asyncio.Future[Any], value: Any) -> None:
    """Answer from what another start has reserved: behind its first turn, if that is still to come."""
    if actor.state.last_event:
        actor.batch.answer(future, value)
    else:
        actor.put(Inspection(lambda _state: value), future)


def _started_by(
    shard: Shard, workflow_id: str, request_id: str, digest: bytes, *, name: str, args: Sequence[Payload]
) -> tuple[WorkflowActor, bytes] | None:
    """The run that has received this request, and the digest of what that was."""
    actor = shard.starts.get((workflow_id, request_id))
    if actor is not None:
        return actor, actor.state.started.digest
    request = shard.index.requests.find(workflow_id, request_id)
    if request is None:
        return None
    actor = shard.actor_by_key(request.run_key)
    if actor is None:  # that run was purged; its chain may go on
        actor = _begun_by(shard, workflow_id, request_id)
    if actor is None:  # starting again would do twice what was asked for once
        if not is_same(shard, request.digest, digest, kind="start", name=name, args=args):
            raise RequestIdReusedError(request_id, workflow_id)
        raise WorkflowPurgedError(workflow_id, request_id)
    return actor, request.digest
