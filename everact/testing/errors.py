"""Errors of the test kit."""

from __future__ import annotations

from ..journal.errors import EveractError


class ActivityNotMockedError(EveractError):
    """A workflow called an activity that its ``TestEnvironment`` neither has nor fakes.

    Raised at once by the call of the test that waits, and else at the end of the environment. With ``strict=False``
    the workflow gets what it gets in production, an ActivityNotRegisteredError.

    Attributes:
        name: The activity.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"activity {self.name!r} is neither registered nor mocked: pass it in activities=[...], or call "
            f"env.mock_activity({self.name!r}, returns=...)"
        )


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
