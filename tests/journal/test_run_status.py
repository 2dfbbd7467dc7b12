"""The status of a run in the flags of an entry."""

import pytest

from everact.journal.run_status import STATUSES, flagged_status, status_flags
from everact.journal.store import CLOSES_RUN, HAS_BLOBS, HAS_REQUEST, STARTS_RUN

OTHERS = STARTS_RUN | CLOSES_RUN | HAS_REQUEST | HAS_BLOBS


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_is_read_as_it_was_written_beside_all_other_flags(status):
    flags = status_flags(status)
    assert flags and flags < 256 and not flags & OTHERS
    assert flagged_status(flags) == flagged_status(flags | OTHERS) == status


def test_without_a_status_the_flags_leave_it_as_it_was():
    assert flagged_status(0) == flagged_status(OTHERS) == ""


def test_the_flags_that_were_written_never_change_their_meaning():
    assert {status: status_flags(status) for status in STATUSES} == {
        "running": 4,
        "completed": 8,
        "failed": 12,
        "cancelled": 16,
        "terminated": 20,
        "quarantined": 24,
        "held": 28,
        "paused": 128,
        "timed_out": 132,
        "continued_as_new": 136,
    }
