"""Mail for an object of a run that is no longer the run: a rebuild has made it anew, or it has left memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..journal.errors import EveractError
from ..journal.writer import Raise, settle
from .mailbox import URGENT, Mail, Reply

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def forward(actor: WorkflowActor, event: Mail, reply: Reply) -> None:
    """Let the run as it is now have a piece of mail that came to a retired object of it.

    Who waits for the answer gets it from there; or learns that the journal has no such run, as its start was lost.
    """
    try:
        present = actor.shard.find(actor.workflow_id, actor.run_id)
    except EveractError as error:
        if reply is not None:
            settle(reply, Raise(error))
        return
    (present.put_first if type(event) in URGENT else present.put)(event, reply)
