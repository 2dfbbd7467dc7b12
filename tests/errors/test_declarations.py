"""What the decorators refuse: each error says what is wrong, where, and what would be right."""

import pytest
from support.bad_input import refuses

from everact import RetryPolicy, activity, workflow
from everact.exceptions import RegistrationError

# --- workflow classes -------------------------------------------------------------------------------------------


def test_a_workflow_without_run():
    with refuses(
        RegistrationError, "workflow class", "NoRun has no run method", "put @workflow.run on one 'async def'"
    ):

        @workflow.defn
        class NoRun:
            async def run(self):
                pass


def test_two_run_methods():
    with refuses(RegistrationError, "TwoRuns has two @workflow.run methods: first and second", "exactly one"):

        @workflow.defn
        class TwoRuns:
            @workflow.run
            async def first(self):
                pass

            @workflow.run
            async def second(self):
                pass


def test_a_second_run_in_a_subclass():
    class Base:
        @workflow.run
        async def run(self):
            pass

    with refuses(RegistrationError, "Sub has two @workflow.run methods: main and run"):

        @workflow.defn
        class Sub(Base):
            @workflow.run
            async def main(self):
                pass


def test_a_plain_run():
    with refuses(RegistrationError, "@workflow.run:", "Plain.run must be 'async def'"):

        class Plain:
            @workflow.run
            def run(self):
                pass


def test_run_as_an_async_generator():
    with refuses(RegistrationError, "@workflow.run:", "Yields.run is a generator"):

        class Yields:
            @workflow.run
            async def run(self):
                yield 1


@pytest.mark.parametrize("target", [5, "Flow", lambda: None, object()])
def test_defn_on_what_is_no_class(target):
    with refuses(RegistrationError, "@workflow.defn goes on a class, not on", repr(target)):
        workflow.defn(target)


@pytest.mark.parametrize("name", ["", 5, b"x"])
def test_a_bad_name_of_a_workflow(name):
    with refuses(
        RegistrationError, "@workflow.defn(name=...) must be a string that is not empty", repr(name)
    ):
        workflow.defn(name=name)


@pytest.mark.parametrize(
    ("retention", "text"),
    [
        ("30d", "retention must be a timedelta or a number of seconds, not '30d'"),
        (0, "retention must be more than 0, not 0"),
        (-1.0, "retention must be between 0 and 100 years, not -1.0"),
    ],
)
def test_a_retention_that_is_none(retention, text):
    with refuses(RegistrationError, f"@workflow.defn: {text}"):
        workflow.defn(retention=retention)


def test_an_unknown_word_for_on_crash():
    with refuses(RegistrationError, "on_crash must be 'quarantine' or 'fail', not 'retry'"):
        workflow.defn(on_crash="retry")


def test_init_on_another_method():
    with refuses(RegistrationError, "@workflow.init goes on __init__, not on", "setup"):

        class Setup:
            @workflow.init
            def setup(self):
                pass


def test_init_with_other_parameters_than_run():
    with refuses(
        RegistrationError, "@workflow.init:", "Differs.__init__ must take the same parameters as run: (order)"
    ):

        @workflow.defn
        class Differs:
            @workflow.init
            def __init__(self, item):
                pass

            @workflow.run
            async def run(self, order):
                pass


def test_init_with_parameters_and_no_mark():
    with refuses(
        RegistrationError,
        "Wants.__init__ has parameters (order, count)",
        "called without arguments",
        "give it @workflow.init to get run's arguments, or take them in run",
    ):

        @workflow.defn
        class Wants:
            def __init__(self, order, count=1):
                pass

            @workflow.run
            async def run(self, order):
                pass


def test_init_with_keyword_only_parameters_and_no_mark():
    with refuses(RegistrationError, "Keywords.__init__ has parameters", "order", "@workflow.init"):

        @workflow.defn
        class Keywords:
            def __init__(self, *, order):
                pass

            @workflow.run
            async def run(self, order):
                pass


def test_run_with_required_keyword_only_parameters():
    with refuses(
        RegistrationError,
        "OnlyKeyword.run has the keyword-only parameter 'order'",
        "remove the '*', or give it a default",
    ):

        @workflow.defn
        class OnlyKeyword:
            @workflow.run
            async def run(self, *, order):
                pass


def test_init_with_defaults_needs_no_mark():
    @workflow.defn
    class Defaults:
        def __init__(self, count=1, *, loud=False):
            self.count = count

        @workflow.run
        async def run(self):
            pass


def test_run_without_self():
    with refuses(RegistrationError, "NoSelf.run must take self"):

        @workflow.defn
        class NoSelf:
            @workflow.run
            async def run():
                pass


# --- handlers ---------------------------------------------------------------------------------------------------

HANDLERS = {"signal": workflow.signal, "query": workflow.query, "update": workflow.update}


@pytest.mark.parametrize("kind", HANDLERS)
@pytest.mark.parametrize("parentheses", [False, True])
def test_one_python_name_declared_twice(kind, parentheses):
    decorate = HANDLERS[kind]() if parentheses else HANDLERS[kind]
    with refuses(
        RegistrationError,
        f"@workflow.{kind}: ",
        "Twice.status is declared twice in its class (lines ",
        "the second would replace the first",
    ):

        class Twice:
            @decorate
            def status(self):
                pass

            @decorate
            def status(self):  # noqa: F811
                pass


def test_one_python_name_declared_as_two_kinds():
    with refuses(RegistrationError, "@workflow.query: ", "Kinds.status is declared twice in its class"):

        class Kinds:
            @workflow.signal
            def status(self):
                pass

            @workflow.query
            def status(self):  # noqa: F811
                pass


def test_a_run_and_a_signal_of_one_python_name():
    with refuses(RegistrationError, "@workflow.signal: ", "Same.run is declared twice"):

        class Same:
            @workflow.run
            async def run(self):
                pass

            @workflow.signal
            def run(self):  # noqa: F811
                pass


@pytest.mark.parametrize("kind", HANDLERS)
def test_two_handlers_of_one_name(kind):
    decorate = HANDLERS[kind]
    with refuses(RegistrationError, f"Clash has two {kind} handlers named 'status': first and status"):

        @workflow.defn
        class Clash:
            @workflow.run
            async def run(self):
                pass

            @decorate(name="status")
            def first(self):
                pass

            @decorate
            def status(self):
                pass


@pytest.mark.parametrize("kind", HANDLERS)
def test_a_name_clash_with_an_inherited_handler(kind):
    decorate = HANDLERS[kind]

    class Base:
        @decorate(name="status")
        def old(self):
            pass

    with refuses(RegistrationError, f"Child has two {kind} handlers named 'status': new and old"):

        @workflow.defn
        class Child(Base):
            @workflow.run
            async def run(self):
                pass

            @decorate(name="status")
            def new(self):
                pass


def test_overriding_an_inherited_handler_is_no_clash():
    class Base:
        @workflow.query
        def status(self):
            return "base"

    @workflow.defn
    class Child(Base):
        @workflow.run
        async def run(self):
            pass

        @workflow.query
        def status(self):
            return "child"


def test_overriding_an_inherited_handler_without_its_mark():
    class Base:
        @workflow.query
        def status(self):
            return "base"

    with refuses(
        RegistrationError, "Child.status hides the query ", "Base.status", "put @workflow.query on it"
    ):

        @workflow.defn
        class Child(Base):
            @workflow.run
            async def run(self):
                pass

            def status(self):
                return "child"


def test_one_method_marked_twice():
    with refuses(
        RegistrationError, "Both.status is already declared as a signal", "one of run, signal, query, update"
    ):

        class Both:
            @workflow.query
            @workflow.signal
            def status(self):
                pass


def test_a_query_that_awaits():
    with refuses(
        RegistrationError,
        "@workflow.query: ",
        "Waits.status must be a plain 'def'",
        "a query answers at once",
        "(an update may await)",
    ):

        class Waits:
            @workflow.query
            async def status(self):
                pass


@pytest.mark.parametrize("kind", HANDLERS)
def test_a_handler_that_yields(kind):
    with refuses(RegistrationError, f"@workflow.{kind}: ", "Yields.status", "generator"):

        class Yields:
            @HANDLERS[kind]
            def status(self):
                yield 1


def test_a_validator_that_awaits():
    with refuses(RegistrationError, "validator", "Checks.check must be a plain 'def': it decides at once"):

        class Checks:
            @workflow.update
            async def rename(self, to):
                pass

            @rename.validator
            async def check(self, to):
                pass


def test_two_validators_of_one_update():
    with refuses(RegistrationError, "update 'rename' has two validators: check and again"):

        class Checks:
            @workflow.update
            async def rename(self, to):
                pass

            @rename.validator
            def check(self, to):
                pass

            @rename.validator
            def again(self, to):
                pass


def test_a_validator_with_other_parameters():
    with refuses(
        RegistrationError, "validator", "Checks.check must take the same parameters as rename: (to, loud)"
    ):

        @workflow.defn
        class Checks:
            @workflow.run
            async def run(self):
                pass

            @workflow.update
            async def rename(self, to, loud=False):
                pass

            @rename.validator
            def check(self, to):
                pass


@pytest.mark.parametrize("kind", HANDLERS)
@pytest.mark.parametrize("wrap", [staticmethod, classmethod, property])
def test_a_handler_that_is_no_plain_method(kind, wrap):
    with refuses(RegistrationError, f"@workflow.{kind} goes on a plain method, not on"):

        class Odd:
            @HANDLERS[kind]
            @wrap
            def status(self):
                pass


@pytest.mark.parametrize("kind", HANDLERS)
@pytest.mark.parametrize("name", ["", 5, "\ud800"])
def test_a_bad_name_of_a_handler(kind, name):
    with refuses(RegistrationError, f"@workflow.{kind}(name=...) must be a string that is not empty"):

        class Named:
            @HANDLERS[kind](name=name)
            def status(self):
                pass


@pytest.mark.parametrize("kind", HANDLERS)
def test_a_name_where_the_method_belongs(kind):
    with refuses(RegistrationError, f"@workflow.{kind} goes on a plain method, not on 'status'", "name="):
        HANDLERS[kind]("status")


# --- activities -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("yields", ["def", "async def"])
def test_a_generator_is_no_activity(yields):
    namespace = {"activity": activity}
    with refuses(RegistrationError, "@activity.defn: rows is a generator", "an activity returns one value"):
        exec(f"@activity.defn\n{yields} rows():\n    yield 1", namespace)


@pytest.mark.parametrize("wrap", [staticmethod, classmethod])
def test_the_activity_decorator_above_staticmethod(wrap):
    with refuses(RegistrationError, "@activity.defn goes below @staticmethod or @classmethod, not above"):

        class Mailer:
            @activity.defn
            @wrap
            def send(self):
                pass


@pytest.mark.parametrize("target", [5, "send", type("Mailer", (), {}), print])
def test_an_activity_that_is_no_function(target):
    with refuses(RegistrationError, "@activity.defn goes on a function or method, not on", repr(target)):
        activity.defn(target)


@pytest.mark.parametrize("name", ["", 5, "\ud800"])
def test_a_bad_name_of_an_activity(name):
    with refuses(
        RegistrationError, "@activity.defn(name=...) must be a string that is not empty", repr(name)
    ):

        @activity.defn(name=name)
        def send():
            pass


def test_an_unknown_option_of_an_activity_is_named_with_the_known_ones():
    with refuses(
        TypeError, "unknown activity option 'timeout'; known: ", "retry_policy", "start_to_close_timeout"
    ):

        @activity.defn(timeout=5)
        def send():
            pass


def test_a_retry_policy_of_another_type():
    with refuses(TypeError, "retry_policy must be a RetryPolicy, not 3"):

        @activity.defn(retry_policy=3)
        def send():
            pass


def test_retry_policy_names_what_is_wrong():
    with refuses(TypeError, "a retry policy names exception classes or their names, not 5"):
        RetryPolicy(retry_on=[5])
    with refuses(TypeError, "a retry policy names exception classes or their names, not <class 'int'>"):
        RetryPolicy(non_retryable_error_types=[int])
    with refuses(TypeError, "RetryPolicy.retry_on must be a list", "'OSError'"):
        RetryPolicy(retry_on="OSError")
    with refuses(TypeError, "RetryPolicy.non_retryable_error_types must be a list", "OSError"):
        RetryPolicy(non_retryable_error_types=OSError)
