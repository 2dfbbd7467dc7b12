"""Backoff and restart budget, with time and chance in the test's hand."""

import random

import pytest

from everact.supervision.backoff import Backoff
from everact.supervision.strategies import OneForOne, RestartLimit


class Middle(random.Random):
    """No jitter."""

    def random(self):
        return 0.5


def test_pauses_grow_up_to_the_longest():
    backoff = Backoff(first=0.1, factor=2.0, longest=1.0, jitter=0.5)
    assert [backoff.pause(n, Middle()) for n in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert backoff.pause(10**9, Middle()) == 1.0


def test_jitter_stays_within_its_share_and_is_used():
    backoff = Backoff(first=0.1, factor=2.0, longest=10.0, jitter=0.5)
    source = random.Random(1)
    pauses = [backoff.pause(1, source) for _ in range(200)]
    assert all(0.1 <= pause <= 0.3 for pause in pauses)
    assert min(pauses) < 0.12 and max(pauses) > 0.28


def test_the_fourth_crash_within_the_window_is_the_last():
    child = OneForOne(RestartLimit(most=3, window=5.0))
    assert [child.crashed(n, 10.0 + n, Middle()) is None for n in range(4)] == [False, False, False, True]
    assert child.count == 3


def test_crashes_that_are_further_apart_are_restarted():
    child = OneForOne(RestartLimit(most=3, window=5.0))
    assert all(child.crashed(n, n * 1.7, Middle()) is not None for n in range(20))


def test_a_crash_counts_until_the_window_has_passed_and_not_longer():
    child = OneForOne(RestartLimit(most=1, window=5.0))
    assert child.crashed("a", 0.0, Middle()) is not None
    assert child.crashed("b", 4.999, Middle()) is None
    child = OneForOne(RestartLimit(most=1, window=5.0))
    assert child.crashed("a", 0.0, Middle()) is not None
    assert child.crashed("b", 5.0, Middle()) is not None


def test_the_same_crash_twice_in_a_row_is_given_up_at_once():
    child = OneForOne(RestartLimit())
    assert child.crashed(("bug", 7), 0.0, Middle()) is not None
    assert child.crashed(("bug", 8), 100.0, Middle()) is not None
    assert child.crashed(("bug", 8), 200.0, Middle()) is None
