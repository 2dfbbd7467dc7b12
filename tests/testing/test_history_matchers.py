"""Assertions about histories: in order, counted, absent; and what they say when they fail."""

from dataclasses import dataclass
from datetime import timedelta
from unittest.mock import ANY

import pytest
from support.corpus import GOOD
from support.hosting import hosted

from everact import ApplicationError, activity, workflow
from everact.exceptions import ImportRefusedError
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal
from everact.payloads import RawValue
from everact.testing import (
    ActivityCompleted,
    ActivityFailed,
    ActivityScheduled,
    AttemptFailed,
    ChildCompleted,
    ChildFailed,
    ChildScheduled,
    EventMatcher,
    HandlerFailed,
    SignalReceived,
    SignalSent,
    StepCompleted,
    TimerFired,
    TimerStarted,
    UpdateCompleted,
    UpdateFailed,
    UpdateReceived,
    ValuePublished,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowContinuedAsNew,
    WorkflowFailed,
    WorkflowStarted,
    assert_history,
    event_matchers,
)


@dataclass
class Item:
    name: str
    count: int


@activity.defn
async def charge(item: Item, cents: int) -> Item:
    return item


@workflow.defn
class Order:
    @workflow.run
    async def run(self, item: Item) -> str:
        await workflow.sleep(0.001)
        await charge(item, 1)
        await charge(item, 2)
        return "done"


@pytest.fixture
async def order():
    async with hosted(MemoryJournal(), Order, activities=[charge]) as runtime:
        handle = await runtime.spawn(Order, Item("tea", 2), id="order")
        await handle.result()
        return await handle.fetch_history()


async def test_events_in_order(order):
    chain = (
        assert_history(order)
        .has(WorkflowStarted("Order", [Item("tea", 2)]))
        .then(TimerStarted(0.001))
        .then(TimerFired())
        .then(ActivityScheduled("charge", [Item("tea", 2), 1]))
        .then(ActivityCompleted("charge", Item("tea", 2)))
        .then(ActivityScheduled("charge", lambda args: args[1] == 2))
        .then(WorkflowCompleted("done"))
        .never(ActivityFailed())
        .then_never(ActivityScheduled())
        .has(ActivityScheduled("charge"), times=2)
        .has(ActivityScheduled("ship"), times=0)
    )
    assert chain.count(ActivityCompleted()) == 2


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (ActivityScheduled(args=[{"name": "tea", "count": 2}, 1]), ActivityScheduled(args=[Item("tea", 2)])),
        (ActivityScheduled(args=[ANY, 1]), ActivityScheduled(args=[ANY, ANY, ANY])),
        (ActivityScheduled(args=[..., 1]), ActivityScheduled(args=[..., 3])),
        (
            ActivityScheduled(args=[lambda item: item["count"] == 2, ...]),
            ActivityScheduled(args=[Item("x", 2), 1]),
        ),
        (ActivityScheduled(command=2), ActivityScheduled(command=4)),
        (ActivityCompleted(result=Item("tea", 2), attempt=1), ActivityCompleted(attempt=2)),
        (ActivityCompleted(result=lambda item: item["name"] == "tea"), ActivityCompleted(result=None)),
        (TimerStarted(timedelta(milliseconds=1)), TimerStarted(timedelta(milliseconds=2))),
        (TimerStarted(duration=0.001), TimerStarted(1)),
        (WorkflowStarted(lambda name: name.startswith("Or")), WorkflowStarted("Orders")),
        (WorkflowCompleted(lambda text: "on" in text), WorkflowCompleted("don")),
        (
            EventMatcher("WorkflowStarted", workflow_id="order"),
            EventMatcher("WorkflowStarted", workflow_id="o"),
        ),
        (
            EventMatcher("TimerStarted", duration=1000),
            EventMatcher("TimerStarted", duration=lambda n: n > 1000),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_fields_mean(order, right, wrong):
    assert_history(order).has(right).never(wrong)


class Trip:
    @workflow.signal(name="hear-it")
    def hear(self) -> None: ...

    @workflow.step
    async def book(self) -> None: ...


@activity.defn(dynamic=True)
async def anything(name: str, args: list[RawValue]) -> None: ...


async def test_what_has_a_name_is_given_for_it(order):
    (
        assert_history(order)
        .has(WorkflowStarted(Order))
        .has(WorkflowStarted(Order.run))
        .then(ActivityScheduled(charge, [Item("tea", 2), 1]))
        .then(ActivityCompleted(charge))
        .has(EventMatcher("ActivityScheduled", activity_type=charge), times=2)
    )
    assert repr(ChildScheduled(Order)) == "ChildScheduled(name='Order')"
    assert repr(SignalReceived(Trip.hear)) == "SignalReceived(name='hear-it')"
    assert repr(StepCompleted(Trip.book)) == "StepCompleted(name='book')"
    with pytest.raises(TypeError) as caught:
        ChildScheduled(Item)
    assert (
        str(caught.value)
        == "ChildScheduled: name is a name, an activity or a workflow class, and Item is none"
    )
    with pytest.raises(
        ValueError, match="^anything is dynamic: its events have the name of each call, as in 'charge'$"
    ):
        ActivityScheduled(anything)


async def test_the_class_of_a_matcher_is_any_such_event(order):
    chain = (
        assert_history(order).has(ActivityScheduled, times=2).then(WorkflowCompleted).never(ActivityFailed)
    )
    assert chain.then_never(ActivityScheduled).count(ActivityCompleted) == 2
    with pytest.raises(AssertionError, match=r"^there is no event ActivityFailed\(\), "):
        chain.has(ActivityFailed)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            "TimerFired",
            "takes a matcher of everact.testing, such as TimerFired() or EventMatcher('TimerFired'), not 'TimerFired'",
        ),
        ("charge", "such as ActivityScheduled() or EventMatcher('ActivityScheduled'), not 'charge'"),
        (ev.TimerFired, "such as TimerFired() or EventMatcher('TimerFired'), not <class '"),
        (EventMatcher, "such as ActivityScheduled() or EventMatcher('ActivityScheduled'), not <class '"),
    ],
)
@pytest.mark.parametrize("call", ["has", "then", "never", "then_never", "count"])
async def test_what_is_no_matcher_is_refused(order, call, given, says):
    with pytest.raises(TypeError) as caught:
        getattr(assert_history(order), call)(given)
    assert str(caught.value).startswith(f"{call} takes a matcher of everact.testing, such as ")
    assert says in str(caught.value)


def test_matchers_of_every_feature():
    assert_history(GOOD / "retries.json").has(AttemptFailed("unlucky", "Unlucky")).then(
        ActivityFailed("unlucky", ApplicationError)
    ).then(ActivityCompleted("add", 2))
    assert_history(GOOD / "update.json").has(UpdateReceived("change", ["two"])).then(
        UpdateCompleted("change", "TWO")
    ).then(UpdateFailed("change", "ApplicationError", rejected=False))
    assert_history(GOOD / "handler.json").has(SignalReceived("note", ["bad"])).then(
        HandlerFailed("note", lambda text: text == "ValueError: bad")
    )
    assert_history(GOOD / "children.json").has(ChildScheduled("Kid")).then(ChildCompleted("Kid", 2)).then(
        ChildFailed("Kid", "Negative")
    ).then(SignalSent("go", workflow_id="kid-3"))
    assert_history(GOOD / "continued.json").has(WorkflowContinuedAsNew(["continued", 1]))
    assert_history(GOOD / "published.json").has(ValuePublished("state", {"n": 1})).then(
        ValuePublished("state", None)
    )
    assert_history(GOOD / "cancelled.json").has(EventMatcher("CancelRequested", reason="not wanted")).then(
        WorkflowCancelled()
    )
    assert_history(GOOD / "step_within.json").has(StepCompleted("first"))
    assert_history(GOOD / "fails.json").has(WorkflowFailed("Meant")).never(WorkflowFailed("Other"))


def test_every_named_matcher_is_of_an_event():
    kinds = {cls.__name__ for cls in ev.AnyEvent.__args__}
    for name in event_matchers.__all__:
        assert getattr(event_matchers, name)().kind == name
        assert name in kinds


async def test_a_failure_shows_the_history_and_where_the_match_ended(order):
    with pytest.raises(AssertionError) as caught:
        assert_history(order).has(TimerFired()).then(ActivityScheduled("charge", [ANY, 3]))
    text = str(caught.value).splitlines()
    assert text[0] == (
        "there is no event ActivityScheduled(name='charge', args=[<ANY>, 3]) behind event 3, TimerFired(), in the "
        "history of 'order' (=> matched last, * about this):"
    )
    assert text[3] == "=> 3 > TimerFired command=1"
    assert text[4].startswith(
        ' * 4 < ActivityScheduled command=2 activity_type="charge" args=[{"name": "tea"'
    )
    assert len(text) == 9


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (
            lambda it: it.has(ActivityScheduled("ship")),
            "there is no event ActivityScheduled(name='ship'), in",
        ),
        (lambda it: it.has(TimerFired(), times=2), "there are 1 events TimerFired(), not 2, in"),
        (lambda it: it.never(TimerFired()), "there is an event TimerFired(), event 3, in"),
        (
            lambda it: it.has(TimerFired()).then_never(ActivityCompleted("charge")),
            "there is an event ActivityCompleted(name='charge') behind event 3: event 5, in",
        ),
        (
            lambda it: it.has(WorkflowCompleted()).then(TimerFired()),
            "there is no event TimerFired() behind event 8, WorkflowCompleted(), in",
        ),
        (lambda it: it.then(ActivityFailed()), "there is no event ActivityFailed(), in"),
    ],
)
async def test_what_each_failure_says(order, check, says):
    with pytest.raises(AssertionError) as caught:
        check(assert_history(order))
    assert str(caught.value).startswith(says)


def test_of_a_long_history_what_matters_is_shown():
    with pytest.raises(AssertionError) as caught:
        assert_history(long_history(200)).has(ActivityCompleted("act", 100)).then(ActivityFailed())
    lines = str(caught.value).splitlines()
    assert len(lines) == 43
    assert lines[1] == "   ... 182 events before"
    assert lines[-1] == "   ... 180 events behind"
    assert any(line.startswith("=> 203 > ActivityCompleted") for line in lines)


def long_history(count):
    from everact import History
    from everact.payloads import PayloadConverter

    encode = PayloadConverter().encode
    records = [(1, ev.Turn((ev.WorkflowStarted("w", "r", "T"),), (ev.ActivityScheduled(1, "act"),)))]
    for n in range(1, count + 1):
        records.append(
            (n, ev.Turn((ev.ActivityCompleted(n, 1, encode(n - 1)),), (ev.ActivityScheduled(n + 1, "act"),)))
        )
    return History("w", "r", records)


def test_wrong_matchers_are_refused():
    with pytest.raises(
        ValueError, match="there is no event 'ActivityStarted'; there are: ActivityCancelRequested, "
    ):
        EventMatcher("ActivityStarted")
    with pytest.raises(
        ValueError, match="the event TimerFired has no field 'duration'; it has: command, name"
    ):
        EventMatcher("TimerFired", duration=1)
    with pytest.raises(TypeError, match="duration must be a timedelta or a number of seconds"):
        TimerStarted("1 s")
    with pytest.raises(ImportRefusedError):
        assert_history("{}")
    with pytest.raises(TypeError, match="a history is what"):
        assert_history(7)
