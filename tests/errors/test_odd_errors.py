"""Errors that are hard to turn into data: broken, endless, enormous. Each becomes a failure, quickly."""

import time
from datetime import timedelta

import msgspec
import pytest
from support.bad_input import memory_runtime

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.actors.errors import ActivityError, FailureError
from everact.actors.failure_conversion import activity_failure, error_of, failure_of, is_failure
from everact.exceptions import WorkflowFailedError
from everact.journal.failures import (
    CAUSE_LIMIT,
    FAILURE_LIMIT,
    GROUP_LIMIT,
    MESSAGE_LIMIT,
    TEXT_LIMIT,
    Failure,
    full_text,
)
from everact.journal.payloads import PayloadConverter

CONVERTER = PayloadConverter()
ONCE = RetryPolicy(maximum_attempts=1)


def made(error, **options):
    """The failure, which can be stored, read and shown."""
    began = time.process_time()
    failure = failure_of(error, CONVERTER, **options)
    assert time.process_time() - began < 5, "of the 50 ms that it may take on a quiet machine"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=Failure) == failure
    assert len(list(failure.tree())) <= FAILURE_LIMIT
    assert len(full_text(failure)) < TEXT_LIMIT + 100
    assert isinstance(error_of(failure, CONVERTER), Exception)
    return failure


class PaymentError(ApplicationError):
    """Its author has forgotten super().__init__()."""

    def __init__(self, code):
        self.code = code


class NoRetry(PaymentError):
    non_retryable = True

    def __str__(self):
        return f"code {self.code}"


class Declined(ApplicationError):
    """Uses names of ours for its own purposes."""

    def __init__(self):
        self.failure = "declined"
        self.details = 5
        self.next_retry_delay = "soon"


class Traps(ApplicationError):
    @property
    def message(self):
        raise ValueError("message")

    @message.setter
    def message(self, value):
        pass

    def __getattr__(self, name):
        raise RuntimeError(name)


class Rude(Exception):
    def __init__(self, what):
        self.what = what

    def __str__(self):
        raise self.what

    __repr__ = __str__


class NoText(Exception):
    def __str__(self):
        return 5  # noqa: PLE0307


class Text(str):
    __slots__ = ()

    def encode(self, *args):
        raise RuntimeError("encode")

    def __len__(self):
        raise RuntimeError("len")


class OwnText(Exception):
    def __str__(self):
        return Text("own")


class Meta(type):
    @property
    def __name__(cls):
        raise RuntimeError("name")


class Nameless(Exception, metaclass=Meta):
    pass


class Causeless(Exception):
    @property
    def __cause__(self):
        raise RuntimeError("cause")


@pytest.mark.parametrize(
    ("error", "type_name", "message"),
    [
        (PaymentError(3), "PaymentError", "3"),
        (NoRetry(3), "NoRetry", "code 3"),
        (Declined(), "Declined", ""),
        (Traps("x"), "Traps", "x"),
        (Rude(KeyError()), "Rude", "<its __str__ raised KeyError>"),
        (Rude(SystemExit()), "Rude", "<its __str__ raised SystemExit>"),
        (NoText(), "NoText", "<its __str__ raised TypeError>"),
        (OwnText(), "OwnText", "own"),
        (Nameless("x"), "Exception", "x"),
        (Causeless("x"), "Causeless", "x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "error",
)
def test_an_error_that_is_broken_itself_is_a_failure_all_the_same(error, type_name, message):
    for one in (error, ExceptionGroup("g", [error])):
        failure = made(one)
        failure = failure.group[0] if failure.group else failure
        assert (failure.type, failure.message) == (type_name, message)
    assert failure.non_retryable is (type_name == "NoRetry")
    assert failure.next_delay == -1
    try:
        raise KeyError("around") from error
    except KeyError as outer:
        assert made(outer).cause.type == type_name


def test_details_that_cannot_be_stored_or_shown_become_texts():
    class Shy:
        def __getattribute__(self, name):
            raise RuntimeError(name)

        def __repr__(self):
            raise RuntimeError("repr")

    failure = made(ApplicationError("x", 1, Shy(), object()))
    details = [CONVERTER.decode(payload) for payload in failure.details]
    assert details[0] == 1 and "Shy" in details[1] and details[2].startswith("object <object")
    assert made(Declined()).details == (CONVERTER.encode(5),)


def test_names_that_utf8_cannot_hold_are_stored():
    odd = type("Odd", (ApplicationError,), {"__module__": "m\udfff"})
    failure = made(odd("x\ud800", type="t\ud800"))
    assert (failure.type, failure.bases[0], failure.message) == ("Odd", "m?.Odd", "x?")
    assert made(ApplicationError("x", type="t\ud800" * 10**6)).type.startswith("t?t?")
    assert len(made(ApplicationError("x", type="t" * 10**6)).type) < MESSAGE_LIMIT + 100


def test_a_group_whose_members_have_it_as_their_context_is_read_once():
    group = ExceptionGroup("uploads failed", [OSError(f"file {n}") for n in range(30)])
    try:
        raise group
    except ExceptionGroup as caught:
        for error in caught.exceptions:  # ordinary code: look at each one
            try:
                raise error
            except OSError:
                pass
    assert group.exceptions[0].__context__ is group
    failure = made(group)
    assert [member.message for member in failure.group] == [f"file {n}" for n in range(30)]
    assert len(list(failure.tree())) == 31


def test_causes_that_end_in_themselves_end():
    first, second = KeyError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    failure = made(first)
    assert [one.message for one in failure.tree()] == ["'first'", "'second'"]
    first.__cause__ = first
    assert made(first).cause is None


def test_a_cause_that_members_share_is_kept_with_each():
    lost = ConnectionError("lost")
    members = [OSError(str(n)) for n in range(5)]
    for member in members:
        member.__cause__ = lost
    failure = made(ExceptionGroup("g", members))
    assert [member.cause.message for member in failure.group] == ["lost"] * 5
    assert made(ExceptionGroup("twice", [lost, lost])).group[1].message == "lost"


def nested(levels, leaves=lambda: [ValueError("leaf")], width=1):
    error = leaves()[0]
    for level in range(levels):
        error = ExceptionGroup(f"level {level}", [error] * width)
    return error


@pytest.mark.parametrize(("levels", "width"), [(900, 1), (40, 2), (300, 50)])
def test_groups_in_groups_are_kept_as_far_as_a_failure_may_go(levels, width):
    failure = made(nested(levels, width=width))
    assert failure.message == f"level {levels - 1}"
    depth, one = 0, failure
    while one.group:
        depth, one = depth + 1, one.group[0]
    assert 3 <= depth <= CAUSE_LIMIT
    assert len(failure.group) == width


def test_a_wide_group_names_every_member_that_it_keeps_even_when_the_first_have_long_stories():
    members = []
    for number in range(GROUP_LIMIT + 10):
        member = error = ValueError(f"member {number}")
        for level in range(30):
            error.__cause__ = KeyError(f"{number} {level}")
            error = error.__cause__
        members.append(member)
    failure = made(ExceptionGroup("wide", members))
    assert [one.message for one in failure.group] == [f"member {n}" for n in range(GROUP_LIMIT)]
    assert len(list(failure.group[0].tree())) == CAUSE_LIMIT
    assert len(list(failure.tree())) == FAILURE_LIMIT


def test_a_long_chain_of_causes_is_cut_and_costs_no_more_than_what_is_kept():
    error = root = ValueError("0")
    for number in range(1, 20_000):
        error.__context__ = ValueError(str(number))
        error = error.__context__
    failure = made(root)
    assert len(list(failure.tree())) == CAUSE_LIMIT + 1


def test_a_failure_that_travels_on_and_on_stays_within_its_limits():
    failure = made(ValueError("root"))
    for number in range(100):
        error = error_of(activity_failure(failure, "a", 1, 1, "once"), CONVERTER)
        wrapped = KeyError(number)
        wrapped.__cause__ = error
        failure = made(wrapped)
    shared = error_of(failure, CONVERTER)
    group = made(ExceptionGroup("g", [shared] * 30))
    assert [member.message for member in group.group] == ["99"] * 30


def test_a_stored_failure_is_taken_as_it_is():
    failure = made(ApplicationError("x", 1))
    error = error_of(failure, CONVERTER)
    assert failure_of(error, CONVERTER).details == failure.details
    error.failure = msgspec.structs.replace(failure, trace="kept")
    assert failure_of(error, CONVERTER) is error.failure
    assert failure_of(error, CONVERTER, kind="crash").kind == "crash"


def test_whether_a_group_is_a_failure_is_found_without_recursion():
    assert is_failure(nested(900, lambda: [ApplicationError("x")]))
    assert not is_failure(nested(900))
    assert is_failure(nested(60, lambda: [TimeoutError()], width=2)), "2 ** 60 ways to the leaf"
    assert not is_failure(BaseExceptionGroup("g", [ApplicationError("x"), KeyboardInterrupt()]))


@pytest.mark.parametrize("colour", ["async", "thread", "run"])
async def test_an_error_without_super_init_is_reported_at_once_and_as_itself(colour):
    @activity.defn(name="async", retry_policy=ONCE)
    async def fails() -> None:
        raise PaymentError(3)

    @activity.defn(name="thread", retry_policy=ONCE, start_to_close_timeout=timedelta(seconds=20))
    def fails_too() -> None:
        raise PaymentError(3)

    @workflow.defn
    class Pays:
        @workflow.run
        async def run(self) -> None:
            if colour != "run":
                await workflow.execute_activity(colour)
            raise PaymentError(3)

    async with memory_runtime([Pays], [fails, fails_too]) as runtime:
        with pytest.raises(WorkflowFailedError, match="PaymentError: 3") as caught:
            await runtime.execute(Pays)
    cause = caught.value.__cause__
    assert isinstance(cause, FailureError) and cause.caused_by(PaymentError)
    assert isinstance(cause, ActivityError) is (colour != "run")
