"""What ``@workflow.step`` takes, and what it refuses at once."""

import pytest

from everact import activity, workflow
from everact.exceptions import RegistrationError


def declared(**options):
    class W:
        def helper(self, n: int) -> int:
            return n

        @workflow.step(**options)
        async def work(self, n: int) -> int:
            return n

    return W


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"retries": 3},
            "unknown option 'retries'; known: compensate, name, on_error, on_timeout, optional, retry",
        ),
        ({"retry": "3"}, "retry must be a RetryPolicy or a number of attempts, not '3'"),
        ({"retry": True}, "retry must be an int, not True"),
        ({"retry": 0}, "retry must be 1 or more, not 0"),
        ({"timeout": 0}, "timeout must be more than 0, not 0"),
        ({"timeout": "5"}, "timeout must be a timedelta or a number of seconds"),
        ({"on_timeout": 5}, "on_timeout is given without a timeout"),
        (
            {"timeout": 5, "on_timeout": lambda self: 1},
            "on_timeout must be a method that takes self and the step's",
        ),
        ({"timeout": 5, "on_timeout": print}, "on_timeout must be a method that takes self and the step's"),
        (
            {"on_error": "mend"},
            "on_error must be a method that takes self, the error and the step's parameters",
        ),
        (
            {"on_error": lambda self, n: n},
            "on_error must be a method that takes self, the error and the step's",
        ),
        ({"optional": 1}, "optional must be True or False, not 1"),
        ({"compensate": 5}, "compensate must be an activity, the name of one, a method or a function, not 5"),
        ({"name": ""}, r"@workflow.step\(name=...\) must be a string that is not empty"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_at_the_declaration(options, message):
    with pytest.raises(RegistrationError, match=message):
        declared(**options)


def test_a_step_is_an_async_method_of_one_name():
    with pytest.raises(RegistrationError, match="must be 'async def'"):

        class Plain:
            @workflow.step
            def work(self) -> None:
                pass

    with pytest.raises(RegistrationError, match="has two steps named 'same': one and two"):

        @workflow.defn
        class Two:
            @workflow.run
            async def run(self) -> None:
                pass

            @workflow.step(name="same")
            async def one(self) -> None:
                pass

            @workflow.step(name="same")
            async def two(self) -> None:
                pass

    with pytest.raises(RegistrationError, match="to give a name write @workflow.step"):
        workflow.step("name")


def test_an_activity_is_no_step_and_no_handler():
    @activity.defn
    async def work(self) -> None:
        pass

    for decorator in (workflow.step, workflow.signal, workflow.run):
        with pytest.raises(
            RegistrationError, match="work is an activity, and an activity is no part of a workflow"
        ):
            decorator(work)


def test_a_transient_field_is_built_by_a_plain_method_of_self_alone():
    with pytest.raises(
        RegistrationError, match=r"lookup must be a plain 'def': its value is read as a field"
    ):

        class Waits:
            @workflow.transient
            async def lookup(self) -> int:
                return 1

    with pytest.raises(RegistrationError, match="lookup must take self alone"):

        class Asks:
            @workflow.transient
            def lookup(self, name: str) -> int:
                return 1


async def test_outside_workflows_a_step_is_the_method_it_is():
    assert await declared().work(declared()(), 5) == 5
