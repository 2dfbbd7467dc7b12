"""The names by which the journal knows what tests have at hand: activities, workflow classes, handlers, steps."""

from __future__ import annotations

from typing import Any

from ..actors.definitions import DEFINITION, MARK, ActivityDefinition, Mark, WorkflowDefinition
from ..actors.step_definitions import STEP, StepDefinition
from ..actors.workflow_types import named_type

__all__ = ["declared_name"]


def declared_name(thing: Any) -> Any:
    """The name of an activity, workflow class, run method, handler or step; all else is given back as it is.

    Raises:
        ValueError: It is dynamic: it has the name of each call.
        RegistrationError: It is the run method of several classes.
    """
    declared = vars(thing).get(DEFINITION) if isinstance(thing, type) else getattr(thing, DEFINITION, None)
    mark = getattr(thing, MARK, None)
    step = getattr(thing, STEP, None)
    name: Any = thing
    if isinstance(declared, ActivityDefinition | WorkflowDefinition):
        name = declared.name
    elif isinstance(step, StepDefinition):
        name = step.name
    elif isinstance(mark, Mark):
        name = named_type(thing)[0] if mark.kind == "run" else mark.name
    if name == "" and thing != "":
        raise ValueError(
            f"{thing.__qualname__} is dynamic: its events have the name of each call, as in 'charge'"
        )
    return name
