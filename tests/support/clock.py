"""A clock that stands still until a test moves it; wall and steady time move apart when the wall clock is set."""

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


class ManualClock:
    """Both clocks of a runtime, in the test's hand."""

    def __init__(self, wall=START):
        self._wall = wall
        self._steady = 1000.0

    def wall(self):
        return self._wall

    def steady(self):
        return self._steady

    def advance(self, seconds):
        """Let time pass."""
        self._wall += round(seconds * SECOND)
        self._steady += seconds

    def set_back(self, seconds):
        """Somebody sets the wall clock back (or forward, when negative); no time passes."""
        self._wall -= round(seconds * SECOND)
