"""All public errors: one root, documented, exported, and the same after pickling."""

import builtins
import copy
import importlib
import inspect
import pickle
import pkgutil

import pytest

import everact
from everact import exceptions, testing
from everact.exceptions import ApplicationError, EveractError, FailureError
from everact.journal.failures import Failure

pytestmark = pytest.mark.smoke

#: How to make one of each class whose constructor takes more than a message.
ARGUMENTS = {
    "ActivityError": ("it failed", "charge", 3, 2, "maximum_attempts=2 reached"),
    "ActivityNotMockedError": ("charge", ["refund"]),
    "ActivityNotRegisteredError": ("charge", ["ship", "pack"]),
    "AppendRefusedError": ((1, 2), (3, 4)),
    "ApplicationError": ("no stock", 7, {"item": "tea"}),
    "ChildWorkflowError": ("it failed", "kid-42", "run-1", "Kid", "failed"),
    "ExternalWorkflowError": ("it was refused", "order-42", "run-1"),
    "FailureGroupError": ("two things failed", [ApplicationError("a"), ValueError("b")]),
    "ForbiddenInWorkflowError": ("loop.stop", "return from run"),
    "JournalFullError": ("/orders", "quota", 8 << 20, 1 << 20, 1 << 20, 0),
    "JournalDiskError": ("/orders", "a sync failed"),
    "JournalEncryptedError": ("/orders", ("aes-gcm",)),
    "ActivityNotPendingError": ("order-42", "run-1", 3, 2),
    "ActivityTimeoutError": ("too slow", "heartbeat_timeout"),
    "WorkflowTimeoutError": ("too slow", "run_timeout"),
    "EndlessScheduleError": ("the result of workflow 'w'", "no workflow is open", "0 6 * * *", 100),
    "WorkflowContinuedAsNewError": ("order-42", "run-1", "run-2"),
    "JournalLockedError": ("/orders", 4711),
    "NoDeadLetterError": ("order-42", 7),
    "NoProgressError": ("the result of workflow 'w'", "no workflow is open", "nothing is due"),
    "NondeterminismError": (
        "activity 'a'",
        "timer",
        "flow.py:7",
        "activity 'b' (command 1)",
        9,
        "draw 1",
        12,
    ),
    "PayloadCodecError": ("key 'k' is not known", "result of activity charge", "$"),
    "PayloadDecodeError": ("expected int", "result of activity charge", "$.price"),
    "PayloadEncodeError": ("expected int", "argument 'n' of activity charge", "$.price"),
    "PayloadError": ("expected int", "here", "$"),
    "PayloadTooLargeError": ("argument 'n' of activity charge", 20, 10, ""),
    "ProcessDiedError": ("query status", 3),
    "PublishLimitError": ("progress", 101, 300_000),
    "ReadOnlyError": ("activity 'charge'", "use an update"),
    "RequestIdReusedError": ("r-1", "order-42"),
    "SagaCompensationError": ("booking", [("hotel", "ActivityError: no"), ("car", "ValueError: x")]),
    "TurnBlockedError": (10.0,),
    "CallTimeoutError": ("/orders", "POST /v1/workflows", 30.0, "it is busy", {"request_id": "r-1"}),
    "RuntimeUnreachableError": ("/orders", "nobody listens", {"id": "order-42", "request_id": "r-1"}),
    "UnknownHandlerError": ("signal", "aprove", "Orders", ["approve"]),
    "WorkflowAlreadyStartedError": ("order-42", "run-1", "running"),
    "WorkflowBacklogFullError": ("order-42", "run-1", "paused", 10_000),
    "WorkflowCancelledError": ("order-42", "run-1", "not wanted"),
    "WorkflowClosedError": ("order-42", "run-1", "completed"),
    "WorkflowFailedError": ("order-42", "run-1", "ValueError: x"),
    "WorkflowHeldError": ("order-42", "run-1", "NondeterminismError: x"),
    "WorkflowNotFoundError": ("order-42", None),
    "WorkflowPurgedError": ("order-42", "request-7"),
    "WorkflowNotRegisteredError": ("Orders", ["Parcels"]),
    "WorkflowQuarantinedError": ("order-42", "run-1", "KeyError: x"),
    "WorkflowStatusError": ("order-42", "run-1", "held", "resume", "release"),
    "WorkflowTerminatedError": ("order-42", "run-1", "no stock"),
    "WorkflowTypeError": ("order-42", "Orders", "Parcels"),
}
#: Programs have their own errors.
PROGRAMS = ("everact.bench", "everact.cli", "everact.demo")
#: Errors that leave by another way than as an exception of a public call.
INTERNAL = {
    "CompleteAsyncError",
    "ContinueAsNewError",  # control flow: in everact.workflow
    "WorkflowCrashedError",
    "PausedError",
    "SimulatedCrashError",  # of the test kit: ends the code that an environment dies in
    "Trouble",
    "TurnAborted",
    "TurnBroken",
    "TurnCrashed",
    "RunDiscarded",
    "LostRunError",  # a JournalCorruptError to users
    "NotReadableError",
    "ReplayingError",
    "NotNowError",
    "RunEnds",
    "UnstorableFieldError",
    "RefusedError",  # a CallRefusedError to users
    "SourceMissingError",
    # what commands say and end with
    "UnreadableHistoryError",
    "CodeNotFoundError",
    "EventNotReachedError",
    "HistoryMismatchError",
    "LeftError",
    "NoSuchCodeError",
}


def every_error() -> dict[str, type[BaseException]]:
    """All exception classes of the package."""
    found = {}
    for module in pkgutil.walk_packages(everact.__path__, "everact."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if (
                inspect.isclass(value)
                and issubclass(value, BaseException)
                and value.__module__.startswith("everact.")
                and not value.__module__.startswith(PROGRAMS)
                and not name.startswith("_")
            ):
                found[value.__name__] = value
    return found


#: The test kit has its own, so that programs do not load it.
KIT = {name: getattr(testing, name) for name in testing.__all__ if name.endswith("Error")}
ERRORS = {name: getattr(exceptions, name) for name in exceptions.__all__ if name.endswith("Error")} | KIT


def test_every_error_of_the_package_is_exported():
    missing = {name for name, error in every_error().items() if issubclass(error, EveractError)} - set(ERRORS)
    assert missing <= INTERNAL
    assert set(every_error()) - set(exceptions.__all__) - set(KIT) <= INTERNAL


def test_the_table_of_arguments_names_only_errors():
    assert set(ARGUMENTS) <= set(ERRORS)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_has_one_root_a_name_and_a_docstring(name):
    error = ERRORS[name]
    assert issubclass(error, EveractError)
    assert issubclass(error, Exception)
    assert error.__name__ == name
    assert name.endswith("Error")
    assert error.__doc__
    assert "__doc__" in vars(error)
    assert error.__doc__.splitlines()[0].endswith(".")


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_keeps_its_constructors_arguments_and_can_be_pickled(name):
    arguments = ARGUMENTS.get(name, ("what went wrong",))
    error = ERRORS[name](*arguments)
    assert error.args == arguments
    assert str(error)
    assert repr(error).startswith(f"{name}(")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is type(error)
        assert repr(again.args) == repr(arguments)
        assert str(again) == str(error)
        assert repr(vars(again)) == repr(vars(error))
    assert str(copy.copy(error)) == str(error)


@pytest.mark.parametrize("name", sorted(set(ARGUMENTS) - {"FailureGroupError"}))  # its names are CPython's
def test_an_error_says_all_that_it_was_given(name):
    error = ERRORS[name](*ARGUMENTS[name])
    parameters = [
        parameter
        for parameter in inspect.signature(ERRORS[name]).parameters.values()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    for parameter, given in zip(parameters, ARGUMENTS[name], strict=False):
        assert getattr(error, parameter.name) == given


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_constructor_refuses_to_guess(name):
    if name not in ("ApplicationError", "PayloadError", "PayloadEncodeError", "PayloadDecodeError"):
        with pytest.raises(TypeError):
            ERRORS[name]()


def test_failures_keep_their_stored_form_when_pickled():
    failure = Failure("ValueError", ("builtins.ValueError",), "x")
    for error in (
        exceptions.ApplicationError("x", 1, type="ValueError", non_retryable=True),
        FailureError("x"),
    ):
        error.failure = failure
        again = pickle.loads(pickle.dumps(error))
        assert again.failure == failure
        assert again.caused_by(ValueError)
    again = pickle.loads(pickle.dumps(exceptions.ApplicationError("x", type="Odd", non_retryable=True)))
    assert (again.type, again.non_retryable) == ("Odd", True)


def test_errors_that_python_has_a_word_for_are_of_that_class_too():
    for name, parent in (
        ("ResultTimeoutError", TimeoutError),
        ("ActivityTimeoutError", TimeoutError),
        ("AddressError", ValueError),
        ("CallTimeoutError", TimeoutError),
        ("RuntimeUnreachableError", ConnectionError),
        ("NotInWorkflowError", RuntimeError),
        ("NotInActivityError", RuntimeError),
        ("ForbiddenInWorkflowError", RuntimeError),
    ):
        assert issubclass(ERRORS[name], parent)


def test_no_public_error_hides_one_of_python():
    assert not [name for name in ERRORS if hasattr(builtins, name)]


def test_the_front_door_exports_errors_of_the_same_classes():
    for name in everact.__all__:
        if name.endswith("Error"):
            assert getattr(everact, name) is ERRORS[name]
