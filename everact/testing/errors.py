"""Errors of the test kit."""

from __future__ import annotations

from ..journal.errors import EveractError


class NoProgressError(EveractError):
    """Nothing runs and nothing is due, so that what the test waits for can never come; the text says why.

    Raised by the call that waits, at once. If the test itself brings what is missing, in another task, hold the time
    meanwhile: ``with env.time_held():``.

    Attributes:
        waits_for: The call.
        report: ``TestEnvironment.report()`` as of then.
    """

    def __init__(self, waits_for: str, report: str) -> None:
        super().__init__(waits_for, report)
        self.waits_for = waits_for
        self.report = report

    def __str__(self) -> str:
        return f"{self.waits_for} can never come: nothing runs, and nothing is due.\n{self.report}"
