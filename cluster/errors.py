"""What callers in other processes meet beside the errors of the runtime itself."""

from __future__ import annotations

import builtins

from ..journal.errors import EveractError

#: The reason when there is nothing at the journal's path.
NO_DIRECTORY = "there is no such directory"


class RuntimeUnreachableError(EveractError, builtins.ConnectionError):
    """No program listens at the journal, or it went away and did not come back in time.

    A call that was repeated meanwhile carries one request id: it is applied at most once.

    Attributes:
        journal: Directory of the journal.
        reason: Why nobody could be reached.
    """

    def __init__(self, journal: str, reason: str) -> None:
        super().__init__(journal, reason)
        self.journal = journal
        self.reason = reason

    def __str__(self) -> str:
        text = (
            f"no running program answers for the journal {self.journal!r}: {self.reason}. Start the program whose "
            f"Runtime opens it"
        )
        if self.reason == NO_DIRECTORY:
            return f"{text}, or check the path."
        return (
            f"{text}; without it, `everact list | count | describe | history | result --journal "
            f"{self.journal}` read the journal itself."
        )


class CallTimeoutError(EveractError, builtins.TimeoutError):
    """The program has taken the call and did not answer within the client's timeout.

    Whether it was done is unknown; repeat it with the same ``request_id``: it is then applied once.
    """


class CallRefusedError(EveractError):
    """The program does not understand the call, or failed in it: bad JSON, an unknown route, another version.

    The message says what is wrong. What does not fit a workflow or a handler raises what the runtime raises.
    """
