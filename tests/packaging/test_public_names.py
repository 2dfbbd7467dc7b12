"""Every public module says what it exports, in one order, and exports nothing that is not there."""

import importlib
import pkgutil
import re
from types import ModuleType

import pytest

import everact

pytestmark = pytest.mark.smoke

ROOMS = ("everact.journal", "everact.supervision", "everact.actors", "everact.cluster")


def public_modules() -> list[str]:
    """The front door, its modules without a leading underscore, and the rooms."""
    front = [m.name for m in pkgutil.iter_modules(everact.__path__, "everact.")]
    return [
        "everact",
        *sorted(name for name in {*front, *ROOMS} if not name.rpartition(".")[2].startswith("_")),
    ]


def inner_modules() -> list[str]:
    """Modules inside the rooms; they may have ``__all__``."""
    return [
        module.name
        for room in ROOMS
        for module in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}.")
        if not module.name.endswith(".__main__")
    ]


def in_order(name: str) -> tuple[object, ...]:
    """The key of ruff's RUF022: constants, classes, the rest; numbers in names by value."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[:1].isupper() else 2
    return kind, [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p]


def defined_or_imported(module: ModuleType) -> set[str]:
    """Public names that a reader of the module would see, modules and the future import left out."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }


@pytest.mark.parametrize("name", public_modules())
def test_a_public_module_lists_its_names(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    if hasattr(module, "__all__"):
        return
    assert not defined_or_imported(module), f"{name} has public names and no __all__"


@pytest.mark.parametrize("name", [*public_modules(), *inner_modules()])
def test_all_is_sorted_and_complete(name: str) -> None:
    module = importlib.import_module(name)
    exported = list(getattr(module, "__all__", ()))
    assert exported == sorted(exported, key=in_order)
    assert len(exported) == len(set(exported))
    assert [n for n in exported if not hasattr(module, n)] == []


#: What users may import. A name that goes away breaks them: say so in the changelog, and change it here too.
FROZEN = {
    "everact": [
        "ActivityError",
        "ActorRef",
        "Address",
        "ApplicationError",
        "AsyncActivityHandle",
        "Client",
        "DeadLetter",
        "EveractError",
        "FailureError",
        "History",
        "HistoryEvent",
        "RetryPolicy",
        "Runtime",
        "StepInfo",
        "UpdateHandle",
        "WatchdogLimits",
        "WorkflowDescription",
        "WorkflowHandle",
        "WorkflowListing",
        "WorkflowPage",
        "WorkflowSummary",
        "__version__",
        "activity",
        "blocking",
        "exceptions",
        "interceptors",
        "payloads",
        "workflow",
    ],
    "everact.activity": [
        "ActivityInfo",
        "client",
        "defn",
        "heartbeat",
        "heartbeat_details",
        "in_activity",
        "info",
        "is_cancelled",
        "is_shutting_down",
        "logger",
        "payload_converter",
        "raise_complete_async",
        "shield_thread_cancel_exception",
        "wait_for_cancelled",
        "wait_for_cancelled_sync",
        "wait_for_shutdown",
        "wait_for_shutdown_sync",
    ],
    "everact.blocking": [
        "BlockingActivityHandle",
        "BlockingHandle",
        "BlockingListing",
        "BlockingUpdateHandle",
        "Client",
        "Runtime",
    ],
    "everact.exceptions": [
        "ActivityCancelledError",
        "ActivityError",
        "ActivityNotPendingError",
        "ActivityNotRegisteredError",
        "ActivityTimeoutError",
        "AddressError",
        "AppendRefusedError",
        "ApplicationError",
        "AttemptLostError",
        "CallRefusedError",
        "CallTimeoutError",
        "ChildWorkflowError",
        "CommitUnknownError",
        "DeterminismWarning",
        "EveractError",
        "ExternalWorkflowError",
        "FailureError",
        "FailureGroupError",
        "ForbiddenInWorkflowError",
        "ImportRefusedError",
        "JournalAccessError",
        "JournalClosedError",
        "JournalCorruptError",
        "JournalDiskError",
        "JournalEncryptedError",
        "JournalError",
        "JournalFullError",
        "JournalLockedError",
        "JournalVersionError",
        "NoDeadLetterError",
        "NondeterminismError",
        "NotAJournalError",
        "NotInActivityError",
        "NotInWorkflowError",
        "PayloadCodecError",
        "PayloadDecodeError",
        "PayloadEncodeError",
        "PayloadError",
        "PayloadTooLargeError",
        "ProcessDiedError",
        "PublishLimitError",
        "QueryFailedError",
        "ReadOnlyError",
        "RegistrationError",
        "ReplayFailedError",
        "RequestIdReusedError",
        "ResultTimeoutError",
        "RuntimeClosedError",
        "RuntimeUnreachableError",
        "SagaCompensationError",
        "TurnBlockedError",
        "UnknownHandlerError",
        "UpdateCutError",
        "UpdateFailedError",
        "UpdateRejectedError",
        "WorkflowAlreadyStartedError",
        "WorkflowBacklogFullError",
        "WorkflowCancelledError",
        "WorkflowClosedError",
        "WorkflowContinuedAsNewError",
        "WorkflowFailedError",
        "WorkflowHeldError",
        "WorkflowNotFoundError",
        "WorkflowNotRegisteredError",
        "WorkflowPurgedError",
        "WorkflowQuarantinedError",
        "WorkflowStatusError",
        "WorkflowTerminatedError",
        "WorkflowTimeoutError",
        "WorkflowTypeError",
    ],
    "everact.interceptors": [
        "ActivityInboundInterceptor",
        "ActivityOutboundInterceptor",
        "CancelChildWorkflowInput",
        "CancelExternalWorkflowInput",
        "CancelWorkflowInput",
        "ClientOutboundInterceptor",
        "ContinueAsNewInput",
        "CountWorkflowsInput",
        "DescribeWorkflowInput",
        "ExecuteActivityInput",
        "ExecuteWorkflowInput",
        "FetchWorkflowHistoryInput",
        "GetPublishedValueInput",
        "GetWorkflowResultInput",
        "HandleQueryInput",
        "HandleSignalInput",
        "HandleUpdateInput",
        "Interceptor",
        "ListWorkflowsInput",
        "PauseWorkflowInput",
        "PublishInput",
        "QueryWorkflowInput",
        "RedriveDeadLetterInput",
        "ReleaseWorkflowInput",
        "ResumeWorkflowInput",
        "SideEffectInput",
        "SignalChildWorkflowInput",
        "SignalExternalWorkflowInput",
        "SignalWorkflowInput",
        "StartActivityInput",
        "StartChildWorkflowInput",
        "StartDetachedInput",
        "StartTimerInput",
        "StartWorkflowInput",
        "StartWorkflowUpdateInput",
        "TerminateWorkflowInput",
        "UpsertMemoInput",
        "WorkflowInboundInterceptor",
        "WorkflowOutboundInterceptor",
    ],
    "everact.payloads": [
        "AesGcmCodec",
        "Payload",
        "PayloadCodec",
        "PayloadConverter",
        "PayloadLimits",
        "RawValue",
        "TypeConverter",
        "TypeUpgrade",
        "ZstdCodec",
    ],
    "everact.testing": [
        "CRASH_POINTS",
        "ActivityCancelRequested",
        "ActivityCancelled",
        "ActivityCompleted",
        "ActivityEnvironment",
        "ActivityFailed",
        "ActivityMock",
        "ActivityNotMockedError",
        "ActivityScheduled",
        "AttemptFailed",
        "CancelRequested",
        "ChildCompleted",
        "ChildFailed",
        "ChildScheduled",
        "CompensationCompleted",
        "CompensationFailed",
        "CompensationStarted",
        "EndlessScheduleError",
        "EventMatcher",
        "HandlerFailed",
        "HistoryAssertion",
        "MockCall",
        "NoProgressError",
        "ReplayFailure",
        "ReplayReport",
        "ReplayResult",
        "Replayer",
        "RuntimeOptions",
        "SideEffectRecorded",
        "SignalReceived",
        "SignalSent",
        "StepCompleted",
        "StepFailed",
        "StepStarted",
        "TestEnvironment",
        "TimerCancelled",
        "TimerFired",
        "TimerStarted",
        "UpdateCompleted",
        "UpdateFailed",
        "UpdateReceived",
        "ValuePublished",
        "VirtualClock",
        "WorkflowCancelled",
        "WorkflowCompleted",
        "WorkflowContinuedAsNew",
        "WorkflowFailed",
        "WorkflowMock",
        "WorkflowStarted",
        "WorkflowTerminated",
        "WorkflowTimedOut",
        "assert_compensated",
        "assert_history",
        "assert_history_matches",
        "assert_not_compensated",
        "history_text",
    ],
    "everact.workflow": [
        "ActivityHandle",
        "ChildOutcome",
        "ChildWorkflowCancellationType",
        "ChildWorkflowHandle",
        "ChildWorkflowOptions",
        "ContinueAsNewError",
        "ExternalWorkflowHandle",
        "First",
        "ParentClosePolicy",
        "Saga",
        "SagaStepOptions",
        "Won",
        "WorkflowInfo",
        "all_handlers_finished",
        "cancel",
        "cancellation_requested",
        "complete",
        "continue_as_new",
        "deadline",
        "defn",
        "execute_activity",
        "execute_activity_method",
        "execute_child_workflow",
        "first",
        "get_external_workflow_handle",
        "has_last_completion_result",
        "in_workflow",
        "info",
        "init",
        "last_completion_result",
        "last_failure",
        "logger",
        "memo",
        "now",
        "payload_converter",
        "publish",
        "query",
        "race",
        "random",
        "run",
        "saga",
        "set_query_handler",
        "set_signal_handler",
        "set_update_handler",
        "side_effect",
        "signal",
        "sleep",
        "sleep_until",
        "start_activity",
        "start_child_workflow",
        "start_detached",
        "step",
        "time",
        "transient",
        "update",
        "upsert_memo",
        "uuid4",
        "wait_condition",
        "wait_for_children",
        "wait_for_signal",
        "with_options",
    ],
}


@pytest.mark.parametrize("name", FROZEN)
def test_the_public_names_are_exactly_these(name: str) -> None:
    assert importlib.import_module(name).__all__ == FROZEN[name]
