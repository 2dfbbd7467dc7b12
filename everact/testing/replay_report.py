"""What a replay of stored histories has found, for people and for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal
from xml.etree import ElementTree as ET

from ..actors.call_errors import WorkflowNotFoundError
from ..actors.errors import (
    UNREPEATABLE,
    ActivityNotRegisteredError,
    NondeterminismError,
    WorkflowNotRegisteredError,
    known_names,
)
from ..actors.replay_errors import ReplayFailedError
from ..journal.errors import ImportRefusedError, JournalCorruptError, PayloadError
from ..journal.failures import format_trace, safe_message

__all__ = ["ReplayFailure", "ReplayReport", "ReplayResult", "failure_from"]

FailureKind = Literal["nondeterminism", "not_registered", "undecodable", "damaged", "crashed"]

#: What the kinds of failures are called in texts, and the errors that they come from.
_KINDS: dict[FailureKind, tuple[str, tuple[type[BaseException], ...]]] = {
    "nondeterminism": ("nondeterminism", (NondeterminismError,)),
    "not_registered": ("not registered", (WorkflowNotRegisteredError, ActivityNotRegisteredError)),
    "undecodable": ("undecodable", (PayloadError,)),
    "damaged": ("damaged", (JournalCorruptError, ImportRefusedError, WorkflowNotFoundError)),
    "crashed": ("crashed", ()),
}
#: What XML 1.0 cannot hold.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: Passed replays that a text names; failures are always named.
_NAMED = 20
#: Below all of them, in a text.
_CAUSES = (
    f"Code differs from a history when it was changed, or reads what replay cannot repeat ({UNREPEATABLE})."
)


@dataclass(frozen=True)
class ReplayFailure:
    """Why code does not repeat a history.

    Attributes:
        kind: ``nondeterminism``: the code decides otherwise. ``not_registered``: a workflow type or an activity was not
            given to the Replayer. ``undecodable``: a stored value does not fit its type, or no codec here knows it.
            ``damaged``: the history is not whole, or nothing that was exported. ``crashed``: the code raises what is no
            failure of a run, which it did not when the history was written.
        message: In words.
        expected: For nondeterminism: what the history has.
        actual: For nondeterminism: what the code did.
        place: Of the code that differs, ``file:line``; or in words, where it has no line.
        file: Of the code that differs; empty when it has no line.
        line: In that file; 0 when it has none.
        last_common: For nondeterminism: the last decision that both agree on.
        event: Number of the event whose delivery differs; 0 when it is not known.
        moved: The first random draw that the code makes elsewhere than the history says; empty when there is none.
        trace: Traceback of what the code raised, for ``crashed``.
    """

    kind: FailureKind
    message: str
    expected: str = ""
    actual: str = ""
    place: str = ""
    file: str = ""
    line: int = 0
    last_common: str = ""
    event: int = 0
    moved: str = ""
    trace: str = ""

    def lines(self) -> Iterator[str]:
        """What there is to say of it."""
        if self.kind != "nondeterminism":
            yield self.message
            yield from self.trace.splitlines()
            return
        yield f"the history has: {self.expected}"
        yield f"the code did:    {self.actual}"
        if self.place:
            yield f"at:              {self.place}"
        yield f"last in common:  {self.last_common}"
        yield f"event:           {self.event}"
        if self.moved:
            yield f"random draws have moved: {self.moved}"


@dataclass(frozen=True)
class ReplayResult:
    """One replay of one history.

    Attributes:
        workflow_type: Of the run; empty when the history could not be read.
        workflow_id: Likewise.
        run_id: Likewise.
        source: Where the history is from: a file, a journal, or empty for a value.
        events: How many it has.
        seconds: How long the replay took.
        hash_seed: ``PYTHONHASHSEED`` of the process that has replayed it; None for this process.
        failure: Why it failed; None when it passed.
    """

    workflow_type: str
    workflow_id: str
    run_id: str
    source: str
    events: int
    seconds: float
    hash_seed: int | None = None
    failure: ReplayFailure | None = None

    @property
    def passed(self) -> bool:
        """Whether the code repeats the history."""
        return self.failure is None

    def __str__(self) -> str:
        """The run, and where it is from."""
        run = f"{self.workflow_id!r} ({self.workflow_type}, run {self.run_id})" if self.run_id else ""
        seed = "" if self.hash_seed is None else f"under PYTHONHASHSEED={self.hash_seed}"
        return ", ".join(part for part in (run, self.source, seed) if part) or "a history"


@dataclass(frozen=True)
class ReplayReport:
    """What the replay of several histories has found.

    Attributes:
        results: One for each replay, in order.
        seconds: How long all of it took, reading included.
    """

    results: tuple[ReplayResult, ...]
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the code repeats every history."""
        return all(result.passed for result in self.results)

    @property
    def failed(self) -> tuple[ReplayResult, ...]:
        """The replays that failed."""
        return tuple(result for result in self.results if not result.passed)

    @property
    def failures_by_kind(self) -> dict[str, int]:
        """How many failed, by kind."""
        return dict(Counter(result.failure.kind for result in self.results if result.failure is not None))

    def summary(self) -> str:
        """One line: how many passed, and how the others failed."""
        failed = self.failures_by_kind
        count = len(self.results)
        events = sum(result.events for result in self.results)
        text = (
            f"{count:,} replay{'' if count == 1 else 's'} with {events:,} events in {self.seconds:.2f} s: "
            f"{count - sum(failed.values()):,} passed"
        )
        if failed:
            kinds = ", ".join(
                f"{failed[kind]:,} {name}" for kind, (name, _) in _KINDS.items() if kind in failed
            )
            text += f", {sum(failed.values()):,} failed ({kinds})"
        return text

    def as_text(self) -> str:
        """For people: the summary, then each failure with all that is known of it."""
        lines = [self.summary()]
        for result in self.results:
            if result.failure is None:
                if len(self.results) <= _NAMED:
                    lines.append(f"passed: {result}: {result.events:,} events in {result.seconds:.3f} s")
                continue
            lines.append(f"FAILED, {_KINDS[result.failure.kind][0]}: {result}")
            lines += [f"    {line}" for line in result.failure.lines()]
        if "nondeterminism" in self.failures_by_kind:
            lines.append(_CAUSES)
        return "\n".join(lines)

    def as_data(self) -> dict[str, Any]:
        """For programs: plain values that JSON takes."""
        return {
            "passed": self.passed,
            "seconds": self.seconds,
            "failures_by_kind": self.failures_by_kind,
            "results": [asdict(result) for result in self.results],
        }

    def as_junit(self) -> str:
        """JUnit XML, one test case for each replay."""
        failed = self.failed
        suite = ET.Element(
            "testsuite",
            name="everact replay",
            tests=str(len(self.results)),
            failures=str(len(failed)),
            errors="0",
            time=f"{self.seconds:.3f}",
        )
        for result in self.results:
            seed = "" if result.hash_seed is None else f" PYTHONHASHSEED={result.hash_seed}"
            case = ET.SubElement(
                suite,
                "testcase",
                classname=_xml(result.workflow_type or "everact.replay"),
                name=_xml(f"{result.workflow_id} {result.run_id}".strip() or result.source) + seed,
                time=f"{result.seconds:.3f}",
            )
            if result.source:
                case.set("file", _xml(result.source))
            if result.failure is not None:
                failure = ET.SubElement(
                    case, "failure", type=result.failure.kind, message=_xml(result.failure.message)
                )
                failure.text = _xml("\n".join(result.failure.lines()))
        return ET.tostring(suite, encoding="unicode", xml_declaration=True)

    def raise_for_failures(self) -> None:
        """Raise if anything failed.

        Raises:
            ReplayFailedError: With this report in words.
        """
        if not self.passed:
            shown = ReplayReport(self.failed, self.seconds).as_text().partition("\n")[2]
            error = ReplayFailedError(f"{self.summary()}\n{shown}")
            error.report = self
            raise error


def failure_from(error: BaseException) -> ReplayFailure:
    """Why a replay has failed, from what it has raised."""
    kind: FailureKind = "crashed"
    for known, (_, classes) in _KINDS.items():
        if isinstance(error, classes):
            kind = known
            break
    if isinstance(error, NondeterminismError):
        file, _, line = error.place.rpartition(":")
        has_line = bool(file) and line.isdecimal()
        return ReplayFailure(
            kind,
            str(error),
            error.expected,
            error.actual,
            error.place,
            file if has_line else "",
            int(line) if has_line else 0,
            error.last_common,
            error.event,
            error.moved,
        )
    if isinstance(error, WorkflowNotRegisteredError | ActivityNotRegisteredError):
        is_type = isinstance(error, WorkflowNotRegisteredError)
        what, option = ("workflow type", "workflows") if is_type else ("activity", "activities")
        return ReplayFailure(
            kind,
            f"{what} {error.name!r} was not given to this Replayer; known: {known_names(error.known)}. Pass it in "
            f"Replayer({option}=[...]).",
        )
    message = safe_message(error)
    if kind == "crashed":
        said = f"{type(error).__name__}: {message}" if message else type(error).__name__
        return ReplayFailure(kind, f"the code raised {said}", trace=format_trace(error))
    # What decodes a value knows it is in a runtime's journal, and not who reads it.
    return ReplayFailure(kind, message.replace("Runtime(codecs=", "Replayer(codecs="))


def _xml(text: str) -> str:
    return _NO_XML.sub("?", text)
