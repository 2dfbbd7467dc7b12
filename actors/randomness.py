"""Random numbers of a run: the same ones in each replay, and it is known which of them the code has drawn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import repeat, zip_longest
from typing import Any

from ..journal import events as ev

Note = Callable[[str], None]
#: Name of a stream, number of the command that came next, how many draws.
Run = tuple[str, int, int]
_Drawn = tuple[str, int, int, str]

#: Streams of ``workflow.random(name)`` have this before their names; that of ``workflow.uuid4()`` has none.
NAMED = "random/"
#: What the generator draws at a time, in bits.
_WORD = 32


class DrawnRandom(random.Random):
    """A generator whose every draw is noted: all its methods draw by one of these two.

    Attributes:
        words: How many words of 32 bits it has drawn; -1 once it was seeded anew, and nobody can say.
    """

    words: int

    def __init__(self, seed: str | None = None, stream: str = "", note: Note | None = None) -> None:
        self._stream = stream
        self._note = note
        super().__init__(seed)
        self.words = 0

    def random(self) -> float:
        """A number from 0 up to, but not including, 1."""
        if self._note is not None:
            self._note(self._stream)
        self.words += 2 if self.words >= 0 else 0
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        """A number of ``k`` random bits."""
        if self._note is not None:
            self._note(self._stream)
        drawn = super().getrandbits(k)
        self.words += -(-k // _WORD) if self.words >= 0 else 0
        return drawn

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """As ``random.Random.seed``."""
        super().seed(*args, **kwargs)
        self.words = -1

    def setstate(self, state: Any) -> None:
        """As ``random.Random.setstate``."""
        super().setstate(state)
        self.words = -1

    def go_to(self, words: int, spare: float | None) -> None:
        """Draw on, unnoted, until so many words are drawn; ``spare`` is the number that ``gauss`` keeps."""
        if words > self.words >= 0:
            super().getrandbits(_WORD * (words - self.words))
            self.words = words
        self.gauss_next = spare

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is the code's own: it begins where this one is, and nobody counts its draws.
        return (DrawnRandom, (), self.getstate())


class Randomness:
    """Named streams of random numbers, each seeded by its name, so that draws from one do not shift the others."""

    __slots__ = ("_note", "_streams")

    def __init__(self, note: Note | None = None) -> None:
        """Begin.

        Args:
            note: Called with the stream's name before each draw.
        """
        self._streams: dict[str, DrawnRandom] = {}
        self._note = note

    def stream(self, name: str, seed: str) -> DrawnRandom:
        """The stream of this name; a new one begins with ``seed``."""
        rng = self._streams.get(name)
        if rng is None:
            rng = self._streams[name] = DrawnRandom(seed, name, self._note)
        return rng

    def positions(self) -> dict[str, tuple[int, float | None]]:
        """How far each stream is: words drawn, and the spare number of ``gauss``."""
        return {name: (rng.words, rng.gauss_next) for name, rng in self._streams.items()}


class Draws:
    """What one turn has drawn.

    Attributes:
        runs: In order.
        places: Where the code made them, while it is replayed, beside ``runs``.
    """

    __slots__ = ("places", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.places: list[str] = []

    def add(self, stream: str, command: int, place: str) -> None:
        """One more."""
        runs = self.runs
        if runs and runs[-1][:2] == (stream, command):
            runs[-1] = (stream, command, runs[-1][2] + 1)
        else:
            runs.append((stream, command, 1))
            self.places.append("")
        if place and place not in self.places[-1]:
            self.places[-1] += f", {place}" if self.places[-1] else place

    def event(self) -> ev.RandomDrawn:
        """What the journal keeps of it."""
        return ev.RandomDrawn(tuple(self.runs))


class DrawComparison:
    """Finds, in a replay, the first draw that shifts the later ones of its stream against the journal (case B04).

    Other draws alone are no error: what they change may not matter. They explain a command that differs.

    Attributes:
        moved: The first difference in words; empty while there is none.
    """

    def __init__(self) -> None:
        self.moved = ""
        self._before: Counter[str] = Counter()

    def turn(self, recorded: ev.RandomDrawn | None, draws: Draws | None, until: int | None = None) -> None:
        """Compare a turn.

        Args:
            recorded: What the journal has of it.
            draws: What the code has drawn.
            until: The first command that differs: later draws are its consequence, not its cause.
        """
        wanted = () if recorded is None else recorded.draws
        got = [] if draws is None else draws.runs
        if not self.moved and list(wanted) != got:
            theirs, ours = _totals(wanted), _totals(got)
            shifted = {stream for stream in theirs | ours if theirs[stream] != ours[stream]}
            places = [] if draws is None else draws.places
            self.moved = self._difference(
                _together(wanted, repeat(""), shifted, until), _together(got, places, shifted, until)
            )
        self._before.update(_totals(wanted))

    def pass_by(self, recorded: ev.RandomDrawn | None) -> None:
        """A turn of which only parts were run, or nothing."""
        if recorded is not None:
            self._before.update(_totals(recorded.draws))

    def _difference(self, wanted: list[_Drawn], got: list[_Drawn]) -> str:
        before = self._before.copy()
        for theirs, ours in zip_longest(wanted, got):
            if theirs is None or ours is None or theirs[:3] != ours[:3]:
                place = f" ({ours[3]})" if ours is not None else ""
                return f"the journal has {_in_words(theirs, before)}, the code made {_in_words(ours, before)}{place}"
            before[theirs[0]] += theirs[2]
        return ""


def _together(
    runs: Iterable[Run], places: Iterable[str], streams: set[str], until: int | None
) -> list[_Drawn]:
    """The draws of some streams, those in a row as one; those behind a command left out."""
    found: list[_Drawn] = []
    for (stream, command, count), place in zip(runs, places, strict=False):
        if stream not in streams or (until is not None and command > until):
            continue
        if found and found[-1][:2] == (stream, command):
            _, _, before, where = found[-1]
            found[-1] = (stream, command, before + count, f"{where}, {place}")
        else:
            found.append((stream, command, count, place))
    return found


def _totals(runs: Iterable[Run]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for stream, _command, count in runs:
        totals[stream] += count
    return totals


def _in_words(drawn: _Drawn | None, before: Counter[str]) -> str:
    if drawn is None:
        return "no further draw in this turn"
    stream, command, count, _ = drawn
    first = before[stream] + 1
    draws = f"draw {first}" if count == 1 else f"draws {first} to {first + count - 1}"
    if stream.startswith(NAMED):
        name = stream.removeprefix(NAMED)
        source = f"workflow.random({name!r})" if name else "workflow.random()"
    else:
        source = f"workflow.{stream}()"
    return f"{draws} of {source} before command {command}"
