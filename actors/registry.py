"""The workflows and activities that a runtime was given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .definitions import ActivityDefinition, WorkflowDefinition, registrable_activity, workflow_definition
from .errors import RegistrationError, WorkflowNotRegisteredError
from .workflow_types import named_type


class Registry:
    """What one runtime can run.

    Attributes:
        workflows: By type name.
        activities: By name.
    """

    def __init__(self, workflows: Iterable[type[Any]], activities: Iterable[Any]) -> None:
        """Check the declarations.

        Raises:
            RegistrationError: Something is no workflow or activity, or two have one name.
        """
        self.workflows: dict[str, WorkflowDefinition] = {}
        self.activities: dict[str, ActivityDefinition] = {}
        for cls in workflows:
            _register(self.workflows, workflow_definition(cls), "workflow types")
        for fn in activities:
            _register(self.activities, registrable_activity(fn), "activities")

    def workflow(self, workflow: Any) -> WorkflowDefinition:
        """The definition that a caller means by a class, its run method, or a type name.

        Raises:
            WorkflowNotRegisteredError: The runtime does not have it.
            RegistrationError: It is nothing of the kind, or the run method of several classes.
        """
        name, _ = named_type(workflow, self.workflows)
        definition = self.workflows.get(name)
        if definition is None:
            raise WorkflowNotRegisteredError(name, list(self.workflows))
        return definition


def _register(known: dict[str, Any], definition: Any, what: str) -> None:
    earlier = known.setdefault(definition.name, definition)
    if earlier is not definition:
        raise RegistrationError(
            f"two {what} are named {definition.name!r} ({_source(earlier)} and {_source(definition)}): give one of "
            f"them name='...'"
        )


def _source(definition: WorkflowDefinition | ActivityDefinition) -> str:
    source = definition.cls if isinstance(definition, WorkflowDefinition) else definition.fn
    return f"{source.__module__}.{source.__qualname__}"
