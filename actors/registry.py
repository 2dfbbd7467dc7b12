"""The workflows and activities that a runtime was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from .definitions import (
    MARK,
    ActivityDefinition,
    Mark,
    WorkflowDefinition,
    registrable_activity,
    workflow_definition,
)
from .dynamic import WithDynamic, type_name
from .errors import RegistrationError, WorkflowNotRegisteredError


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
        self._by_run: dict[Callable[..., Any], list[WorkflowDefinition]] = {}
        for definition in self.workflows.values():
            self._by_run.setdefault(definition.run, []).append(definition)
        self.classes = [definition.cls for definition in self.workflows.values()]
        if dynamic := self.workflows.pop("", None):
            self.workflows = WithDynamic(self.workflows, dynamic)
        if activity := self.activities.pop("", None):
            self.activities = WithDynamic(self.activities, activity)

    def workflow(self, workflow: Any) -> WorkflowDefinition:
        """The definition that a caller means by a class, its run method, or a type name.

        Raises:
            WorkflowNotRegisteredError: The runtime does not have it.
            RegistrationError: It is nothing of the kind, or the run method of several classes.
        """
        name: str
        if isinstance(workflow, str):
            name = workflow
        elif isinstance(workflow, type):
            name = type_name(workflow_definition(workflow))
        else:
            return self._by_run_method(workflow)
        definition = self.workflows.get(name)
        if definition is None:
            raise WorkflowNotRegisteredError(name, list(self.workflows))
        return definition

    def _by_run_method(self, run: Any) -> WorkflowDefinition:
        mark = getattr(run, "__dict__", {}).get(MARK)
        if not isinstance(mark, Mark) or mark.kind != "run":
            what = getattr(run, "__qualname__", None) or repr(run)
            if inspect.iscoroutine(run):
                run.close()
                raise RegistrationError(
                    f"{what}() was called: pass the workflow class and its arguments, as in spawn(Order, order)"
                )
            raise RegistrationError(
                f"{what} is neither a workflow class, nor the run method of one, nor the name of a workflow type"
            )
        found = self._by_run.get(run)
        if found is None:
            name = run.__qualname__.rpartition(".")[0].rpartition("<locals>.")[2]
            raise WorkflowNotRegisteredError(name, list(self.workflows))
        if len(found) > 1:
            names = " and ".join(definition.cls.__qualname__ for definition in found)
            raise RegistrationError(
                f"{run.__qualname__} is the run method of {names}: pass the class instead"
            )
        type_name(found[0])
        return found[0]


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
