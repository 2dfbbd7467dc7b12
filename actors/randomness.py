"""Random numbers of a run: the same ones in each replay."""

from __future__ import annotations

import random


class Randomness:
    """Named streams of random numbers, each seeded by its name, so that draws from one do not shift the others."""

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str, seed: str) -> random.Random:
        """The stream of this name; a new one begins with ``seed``."""
        rng = self._streams.get(name)
        if rng is None:
            rng = self._streams[name] = random.Random(seed)  # noqa: S311
        return rng
