"""Errors of the test kit."""

from __future__ import annotations

from collections.abc import Sequence

from ..journal.errors import EveractError

#: What a test environment says that is used before or after its block.
NOT_OPEN = "the TestEnvironment is not open: use it inside 'async with TestEnvironment(...) as env:'"
LEFT = (
    "the TestEnvironment was left: use it, and its handles, before its block 'async with TestEnvironment(...) as env:' "
    "ends; to look at a run later, take its handle.result() or handle.fetch_history() there"
)


class ActivityNotMockedError(EveractError):
    """A workflow called an activity that its ``TestEnvironment`` neither has nor fakes.

    Raised at once by the call of the test that waits, and else at the end of the environment. With ``strict=False``
    the workflow gets what it gets in production, an ActivityNotRegisteredError.

    Attributes:
        name: The activity.
        known: Those that are registered or mocked.
    """

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        if self.name in self.known:
            return (
                f"activity {self.name!r} was called before it was mocked, by a run that the journal had when the "
                f"environment was opened: call env.mock_activity({self.name!r}, ...) before 'async with env:'"
            )
        there = f". There are: {', '.join(map(repr, self.known))}" if self.known else ""
        return (
            f"activity {self.name!r} is neither registered nor mocked: pass it in activities=[...], or call "
            f"env.mock_activity({self.name!r}, returns=...){there}"
        )


class NoProgressError(EveractError):
    """Nothing runs and nothing is due, so that what the test waits for can never come; the text says why.

    Raised by the call that waits, at once; with ``time="manual"`` once no other task has gone on for the environment's
    ``patience``. If the test itself brings what is missing, in another task, hold the time
    meanwhile: ``with env.time_held():``.

    Attributes:
        waits_for: The call.
        report: ``TestEnvironment.report()`` as of then.
        why: Why nothing will happen.
    """

    def __init__(self, waits_for: str, report: str, why: str = "nothing runs, and nothing is due") -> None:
        super().__init__(waits_for, report, why)
        self.waits_for = waits_for
        self.report = report
        self.why = why

    def __str__(self) -> str:
        return f"{self.waits_for} can never come: {self.why}.\n{self.report}"


class EndlessScheduleError(NoProgressError):
    """What a test waits for is the end of a schedule, which goes on for ever: after each run comes another.

    Raised by the call that waits, after ``max_scheduled_runs`` of the ``TestEnvironment``. Wait for the first run
    alone (``handle.result(follow_runs=False)``), or by ``env.sleep`` or ``env.until`` for as long as the test needs.

    Attributes:
        waits_for: The call.
        report: ``TestEnvironment.report()`` as of then.
        schedule: The ``cron_schedule``.
        runs: So many have begun meanwhile.
        why: After each run comes another.
    """

    def __init__(self, waits_for: str, report: str, schedule: str, runs: int) -> None:
        super().__init__(waits_for, report, "after each run comes another")
        self.args = (waits_for, report, schedule, runs)
        self.schedule = schedule
        self.runs = runs

    def __str__(self) -> str:
        return (
            f"{self.waits_for} has not come after {self.runs:,} runs: they follow each other by the schedule "
            f"{self.schedule!r}, until the workflow is cancelled or terminated. Wait for the first run alone by "
            f"handle.result(follow_runs=False), or let time pass by env.sleep() or env.until(); more runs: "
            f"TestEnvironment(max_scheduled_runs=...)\n{self.report}"
        )
