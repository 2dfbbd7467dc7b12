"""Pauses between tries: exponential, with jitter and a cap."""

from __future__ import annotations

import random
from typing import NamedTuple


class Backoff(NamedTuple):
    """How long to wait before the next try.

    Attributes:
        first: Before the first one, in seconds.
        factor: By which each pause is longer than the one before.
        longest: No pause is longer than this, in seconds.
        jitter: Share of the pause by which it is longer or shorter at random, 0 to 1, so that those that failed
            together do not all come back together.
    """

    first: float = 0.05
    factor: float = 4.0
    longest: float = 1.0
    jitter: float = 0.5

    def pause(self, tries: int, source: random.Random) -> float:
        """The pause before a try, in seconds.

        Args:
            tries: How many there were before.
            source: Where the jitter comes from.
        """
        plain = self.first
        for _ in range(tries):  # a power of it might overflow
            plain = min(self.longest, plain * self.factor)
            if plain == self.longest:
                break
        return min(self.longest, plain * (1 + self.jitter * (2 * source.random() - 1)))
