"""Answering queries: from the code in memory, between events; nothing is written (ADR 0004)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..journal.errors import EveractError
from ..journal.failures import safe_message
from ..journal.writer import Raise
from .actor_coding import PausedError
from .errors import QueryFailedError
from .mailbox import Query, Reply
from .restarts import crash_of_query
from .run_end import WorkflowCrashedError
from .running import answer_of
from .stalls import refuse_stalled

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def answer_query(actor: WorkflowActor, query: Query, reply: Reply) -> None:
    """Answer from what the run has handled; before its first turn the query waits for that.

    Raises:
        PausedError: The code is to be loaded again later.
    """
    shard = actor.shard
    if actor.is_stalled:
        refuse_stalled(actor, reply)
        return
    if actor.has_yet_to_begin():
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
            pause = crash_of_query(actor, crash, query, reply)
            if pause is None:
                return
            shard.enqueue_later(actor, pause)
            raise PausedError from None
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
