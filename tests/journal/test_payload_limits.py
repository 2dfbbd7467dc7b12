"""Sizes of stored values: what is refused, by what words, and what is only worth a warning."""

import logging

import pytest

from everact.journal import events as ev
from everact.journal.errors import PayloadTooLargeError
from everact.journal.payload_limits import PayloadLimits, PayloadSizes
from everact.journal.payloads import Payload

LIMITS = PayloadLimits(payload=100, record=250, warning=50)


def about(event):
    return "activity charge", ("order", "card", "note", "more")


def scheduled(*sizes):
    return ev.ActivityScheduled(1, "charge", tuple(Payload("raw", b"x" * size) for size in sizes))


def test_a_value_at_the_limit_passes_and_one_over_it_is_named():
    sizes = PayloadSizes(LIMITS)
    sizes.check_event(scheduled(1, 100), about)
    with pytest.raises(PayloadTooLargeError) as caught:
        sizes.check_event(scheduled(1, 101), about)
    assert str(caught.value) == (
        "argument 'card' of activity charge has 101 bytes, and the limit is 100: pass a reference to data that is kept "
        "elsewhere, or raise Runtime(payload_limits=PayloadLimits(payload=...))"
    )
    assert (caught.value.size, caught.value.limit) == (101, 100)


def test_values_that_only_together_are_large_are_refused_with_the_largest_of_them():
    sizes = PayloadSizes(LIMITS)
    turn = ev.Turn((), (scheduled(60, 90, 70), scheduled(40)))
    sizes.check_record(turn, 250, about)
    with pytest.raises(PayloadTooLargeError) as caught:
        sizes.check_record(turn, 251, about)
    assert str(caught.value) == (
        "one turn of the workflow has 251 bytes (90 in argument 'card' of activity charge, 70 in argument 'note' of "
        "activity charge, 60 in argument 'order' of activity charge), and the limit is 250: pass a reference to "
        "data that is kept elsewhere, or raise Runtime(payload_limits=PayloadLimits(record=...))"
    )
    with pytest.raises(PayloadTooLargeError, match="the input of activity charge has 300 bytes"):
        sizes.check_event(scheduled(100, 100, 100), about)


def test_a_large_value_is_warned_of_once_for_each_kind(caplog):
    sizes = PayloadSizes(LIMITS)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            sizes.check_event(scheduled(49, 50), about)
        sizes.check_event(scheduled(60), about)
    assert [record.getMessage() for record in caplog.records] == [
        f"{where} has {size} bytes, which every replay reads again: consider passing a reference instead (warned once "
        f"from 50 bytes on; the limit is 100)"
        for where, size in (
            ("argument 'card' of activity charge", 50),
            ("argument 'order' of activity charge", 60),
        )
    ]


def test_limits_are_checked():
    with pytest.raises(
        ValueError, match=r"PayloadLimits\(payload=...\) must be from 1 to 1,073,741,824 bytes, not 0"
    ):
        PayloadLimits(payload=0)
    with pytest.raises(ValueError, match="may not have more bytes"):
        PayloadLimits(payload=11, record=10)
    with pytest.raises(ValueError, match="warning"):
        PayloadLimits(warning=True)
