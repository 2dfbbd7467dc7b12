"""Answering queries: from the code in memory, between events; nothing is written (ADR 0004)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..journal.errors import EveractError
from ..journal.failures import safe_message
from ..journal.writer import Raise
from .errors import QueryFailedError
from .mailbox import Query, Reply
from .restarts import crash_of_query
from .run_end import WorkflowCrashedError
from .running import answer_of
from .stalls import refuse_stalled

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def answer_query(actor: WorkflowActor, query: Query, reply: Reply) -> None:
    """Answer from what the run has handled; before its first turn, or while the code cannot be loaded, it waits."""
    shard = actor.shard
    if actor.is_stalled:
        refuse_stalled(actor, reply)
        return
    if actor.keeps_queries():
        actor.early.append((query, reply))
        return
    answer: Any
    try:
        instance = actor.instance or actor.load()
        if not instance.has_begun:
            raise QueryFailedError(f"query {query.name!r}: the run ended before its code had begun")
        answer = answer_of(actor, instance, query)
    except WorkflowCrashedError as crash:
        if not actor.is_closed:
            crash_of_query(actor, crash, query, reply)
            return
        why = safe_message(crash.error)
        answer = Raise(QueryFailedError(f"query {query.name!r}: the closed run cannot be replayed: {why}"))
    except EveractError as error:
        answer = Raise(error)
        if actor.instance is not None and actor.instance.loop.has_ready():
            actor.drop_instance()  # the query has changed it
    if reply is not None:
        if actor.instance is not None and actor.instance.logs:
            actor.batch.after(shard.emit_logs, actor.instance.logs)
            actor.instance.logs = []
        actor.batch.answer(reply, answer)
