"""Assertions about what sagas have undone."""

import copy
import json

import pytest
from support.corpus import GOOD
from support.corpus_workflows import undo

from everact import History
from everact.journal import events as ev
from everact.journal.failures import Failure
from everact.journal.saga_events import CompensationCompleted, CompensationFailed, CompensationStarted
from everact.testing import assert_compensated, assert_not_compensated


def saga(name="saga"):
    return GOOD / f"{name}.json"


def test_in_order_by_the_step_or_by_what_undoes_it():
    assert_compensated(saga(), ["undo", "undo"])
    assert_compensated(saga(), ["hotel", "flight"])
    assert_compensated(saga(), ["hotel", "undo"], saga="trip")
    assert_compensated(saga("saga_ordered"), ["flight", "hotel"])
    assert_compensated(saga("saga_parallel"), ["flight", "hotel"], in_order=False)
    assert_compensated(saga("saga_done"), [])
    assert_compensated(saga(), [], saga="another")


def test_none():
    assert_not_compensated(saga("saga_done"))
    assert_not_compensated(saga("activity"))
    assert_not_compensated(saga(), saga="another")
    with pytest.raises(
        AssertionError, match="saga 'trip' has begun to undo 'hotel', 'flight', in the history of 'saga'"
    ):
        assert_not_compensated(saga())


@pytest.mark.parametrize(
    ("name", "wanted", "says"),
    [
        (
            "saga",
            ["flight", "hotel"],
            "expected to be undone in this order: flight, hotel; what was undone: undo (of hotel), undo (of flight)",
        ),
        (
            "saga",
            ["hotel"],
            "expected to be undone: hotel; what was undone: undo (of hotel), undo (of flight)",
        ),
        ("saga", [], "expected to be undone: nothing; what was undone: undo (of hotel), undo (of flight)"),
        ("saga_done", ["hotel"], "expected to be undone: hotel; what was undone: nothing"),
        ("saga_failing", ["hotel"], "the compensation of step 'flight' failed: "),
    ],
)
def test_what_it_says(name, wanted, says):
    with pytest.raises(AssertionError) as caught:
        assert_compensated(saga(name), wanted)
    text = str(caught.value)
    assert text.startswith(says)
    assert f"in the history of {name!r}:\n" in text
    assert ("\n=> " in text) == (name != "saga_done")


def test_what_undoes_may_be_given_itself():
    assert_compensated(saga(), [undo, undo])
    with pytest.raises(
        AssertionError, match=r"^expected to be undone: flight_back; what was undone: undo \(of hotel\)"
    ):

        def flight_back(): ...

        flight_back.__qualname__ = "flight_back"
        assert_compensated(saga(), [flight_back])
    with pytest.raises(
        TypeError, match="compensations must be a list of names, activities or functions; 7 is none"
    ):
        assert_compensated(saga(), [7])
    with pytest.raises(TypeError, match="compensations must be a list of names, not <function undo "):
        assert_compensated(saga(), undo)


def test_without_order_each_counts_once():
    assert_compensated(saga(), ["flight", "hotel"], in_order=False)
    with pytest.raises(AssertionError, match="expected to be undone: flight, flight; what was undone:"):
        assert_compensated(saga(), ["flight", "flight"], in_order=False)


def started(number, name, total):
    return CompensationStarted(1, number, name, f"un{name}", "trip", total)


def history(*outputs):
    return History("w", "r", [(1, ev.Turn((ev.WorkflowStarted("w", "r", "T"),), outputs))])


def test_what_is_left_or_done_twice():
    one, done = started(1, "book", 2), CompensationCompleted(1, 1, "book")
    with pytest.raises(AssertionError, match="saga 'trip' has not undone 'book'"):
        assert_compensated(history(one), ["book"])
    with pytest.raises(AssertionError, match="saga 'trip' has done 1 of 2 compensations"):
        assert_compensated(history(one, done), ["book"])
    with pytest.raises(AssertionError, match="saga 'trip' has undone 'book' more than once"):
        assert_compensated(history(started(1, "book", 1), done, done), ["book", "book"])
    failed = CompensationFailed(1, 1, "book", Failure("Full"))
    again = started(1, "book", 1)
    assert_compensated(history(again, failed, again, done), ["unbook"])  # it went well after a release
    with pytest.raises(AssertionError, match="the compensation of step 'book' failed: Full"):
        assert_compensated(history(again, failed), ["unbook"])


def test_wrong_arguments():
    with pytest.raises(TypeError, match="compensations must be a list of names, not 'undo'"):
        assert_compensated(saga(), "undo")
    document = json.loads(saga().read_text())
    assert_compensated(copy.deepcopy(document), ["undo", "undo"])
