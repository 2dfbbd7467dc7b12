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
from .errors import RegistrationError, WorkflowNotRegisteredError


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
        self._by_run: dict[Callable[..., Any], list[WorkflowDefinition]] = {}
        for definition in self.workflows.values():
            self._by_run.setdefault(definition.run, []).append(definition)

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
            name = workflow_definition(workflow).name
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
        return found[0]


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
