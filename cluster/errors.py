"""What callers in other processes meet beside the errors of the runtime itself."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from ..journal.errors import EveractError

#: The reason when there is nothing at the journal's path.
NO_DIRECTORY = "there is no such directory"


def _advice(repeat_with: Mapping[str, str] | None, when: str = "") -> str:
    """How a call whose outcome is unknown is repeated."""
    if repeat_with is None:
        return "It only reads: repeat it."
    if not repeat_with:
        return f"Whether it was done is unknown; repeat it{when}: it is done at most once."
    given = " and ".join(f"{name}={value!r}" for name, value in repeat_with.items())
    return f"Whether it was done is unknown; repeat it{when} with {given}: it is then done once."


class RuntimeUnreachableError(EveractError, builtins.ConnectionError):
    """No program listens at the journal, or it went away and did not come back in time.

    A call that was repeated meanwhile carries one request id: it is applied at most once.

    Attributes:
        journal: Directory of the journal.
        reason: Why nobody could be reached.
        repeat_with: The call changes something, and a program had it that then went away: whether it was done is
            unknown. These arguments make a repeat of it safe. None: nothing was done.
    """

    def __init__(self, journal: str, reason: str, repeat_with: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.args = journal, reason, repeat_with  # as an OSError it would take some of them apart
        self.journal = journal
        self.reason = reason
        self.repeat_with = repeat_with

    @property
    def problem(self) -> str:
        """What has happened, without what to do."""
        if self.repeat_with is None:
            return f"no running program answers for the journal {self.journal!r}: {self.reason}"
        return (
            f"the program that had the journal {self.journal!r} open went away in the middle of the call, and none "
            f"has come back in time: {self.reason}"
        )

    def __str__(self) -> str:
        if self.repeat_with is not None:
            return f"{self.problem}. {_advice(self.repeat_with, ' when the program runs again')}"
        text = f"{self.problem}. Start the program whose Runtime opens it"
        if self.reason == NO_DIRECTORY:
            return f"{text}, or check the path."
        return (
            f"{text}; without it, `everact list | count | describe | history | result --journal "
            f"{self.journal}` read the journal itself."
        )


class CallTimeoutError(EveractError, builtins.TimeoutError):
    """The program did not answer within the client's timeout. Whether the call was done is unknown.

    Attributes:
        journal: Directory of the journal.
        call: Which call.
        seconds: How long it was waited for.
        holder: What is known of what keeps the program from answering; may be empty.
        repeat_with: Arguments that make a repeat safe; None when the call only reads.
    """

    def __init__(
        self,
        journal: str,
        call: str,
        seconds: float,
        holder: str = "",
        repeat_with: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(call)
        self.args = journal, call, seconds, holder, repeat_with  # as above
        self.journal = journal
        self.call = call
        self.seconds = seconds
        self.holder = holder
        self.repeat_with = repeat_with

    @property
    def problem(self) -> str:
        """What has happened, without what to do."""
        holder = f" ({self.holder})" if self.holder else ""
        return (
            f"the program that has the journal {self.journal!r} open did not answer {self.call} within "
            f"{self.seconds:g} s{holder}"
        )

    def __str__(self) -> str:
        return f"{self.problem}. {_advice(self.repeat_with)}"


class CallRefusedError(EveractError):
    """The program does not understand the call, or failed in it: bad JSON, an unknown route, another version.

    The message says what is wrong. What does not fit a workflow or a handler raises what the runtime raises.
    """
