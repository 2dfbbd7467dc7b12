"""The workflows and activities that a runtime was given."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from .definitions import ActivityDefinition, WorkflowDefinition, registrable_activity, workflow_definition
from .dynamic import WithDynamic
from .errors import RegistrationError, WorkflowNotRegisteredError
from .workflow_types import named_type


class Registry:
    """What one runtime can run.

    Attributes:
        workflows: By type name.
        activities: By name.
        classes: Of all workflows.
    """

    def __init__(self, workflows: Iterable[type[Any]], activities: Iterable[Any]) -> None:
        """Check the declarations.

        Raises:
            RegistrationError: Something is no workflow or activity, or two have one name.
        """
        self.workflows: dict[str, WorkflowDefinition] = {}
        self.activities: dict[str, ActivityDefinition] = {}
        for cls in workflows:
            _register(self.workflows, workflow_definition(cls), "workflow types", "workflows")
        for fn in activities:
            _register(self.activities, registrable_activity(fn), "activities", "activities")
        self.classes = [definition.cls for definition in self.workflows.values()]
        if dynamic := self.workflows.pop("", None):
            self.workflows = WithDynamic(self.workflows, dynamic)
        if activity := self.activities.pop("", None):
            self.activities = WithDynamic(self.activities, activity)
        self._of_class: dict[Any, WorkflowDefinition] = {
            definition.cls: definition for definition in self.workflows.values()
        }

    def workflow(self, workflow: Any) -> WorkflowDefinition:
        """The definition that a caller means by a class, its run method, or a type name.

        Raises:
            WorkflowNotRegisteredError: The runtime does not have it.
            RegistrationError: It is nothing of the kind, or the run method of several classes.
        """
        if isinstance(workflow, type) and (known := self._of_class.get(workflow)) is not None:
            return known
        return find_workflow(self.workflows, workflow)


def find_workflow(workflows: Mapping[str, WorkflowDefinition], workflow: Any) -> WorkflowDefinition:
    """The registered definition that a caller means; arguments and errors as of ``Registry.workflow``."""
    name, _ = named_type(workflow, workflows)
    definition = workflows.get(name)
    if definition is None:
        raise WorkflowNotRegisteredError(name, list(workflows))
    return definition


def _register(known: dict[str, Any], definition: Any, what: str, kind: str) -> None:
    earlier = known.setdefault(definition.name, definition)
    if earlier is definition:
        return
    places = f"{_source(earlier)} and {_source(definition)}"
    if not definition.name:
        raise RegistrationError(f"two {kind} are dynamic ({places}): a Runtime takes one of them")
    raise RegistrationError(
        f"two {what} are named {definition.name!r} ({places}): give one of them name='...'"
    )


def _source(definition: WorkflowDefinition | ActivityDefinition) -> str:
    """Where a definition is: two of one name may be in one module."""
    source: Any
    if isinstance(definition, WorkflowDefinition):
        source, code = definition.cls, definition.run.__code__
    else:
        source, code = definition.fn, inspect.unwrap(definition.fn).__code__
    file = code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{source.__module__}.{source.__qualname__}, {file}:{code.co_firstlineno}"
