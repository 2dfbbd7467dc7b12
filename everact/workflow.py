"""What authors of workflows write: ``from everact import workflow``."""

from .actors.child_options import (
    ChildWorkflowCancellationType,
    ChildWorkflowOptions,
    ParentClosePolicy,
)
from .actors.child_waits import ChildOutcome, First, first, wait_for_children
from .actors.children import (
    ChildWorkflowHandle,
    ExternalWorkflowHandle,
    execute_child_workflow,
    get_external_workflow_handle,
    start_child_workflow,
    start_detached,
)
from .actors.continuation import (
    ContinueAsNewError,
    continue_as_new,
    has_last_completion_result,
    last_completion_result,
    last_failure,
)
from .actors.dynamic import payload_converter
from .actors.early_end import cancel, complete
from .actors.object_fields import transient
from .actors.publishing import publish
from .actors.races import Won, deadline, race
from .actors.saga import Saga, saga
from .actors.saga_steps import SagaStepOptions
from .actors.setters import set_query_handler, set_signal_handler, set_update_handler
from .actors.side_effects import memo, side_effect, upsert_memo
from .actors.signal_waits import wait_for_signal
from .actors.steps import step
from .actors.typing import ActivityHandle
from .actors.workflow import (
    all_handlers_finished,
    cancellation_requested,
    defn,
    execute_activity,
    execute_activity_method,
    in_workflow,
    init,
    logger,
    now,
    query,
    random,
    run,
    signal,
    sleep,
    sleep_until,
    start_activity,
    time,
    update,
    uuid4,
    wait_condition,
    with_options,
)
from .actors.workflow_info import WorkflowInfo, info

__all__ = [
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
]
