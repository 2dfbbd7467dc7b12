"""Which workflow type a caller means: by a class, by its run method, or by a name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from .definitions import MARK, Mark, WorkflowDefinition, workflow_definition
from .dynamic import type_name
from .errors import RegistrationError


def named_type(
    workflow: Any, registered: Mapping[str, WorkflowDefinition] | None = None
) -> tuple[str, WorkflowDefinition | None]:
    """The name of the type that a caller means, and what is known of it here.

    Args:
        workflow: A class, its run method, or a type name.
        registered: Types by name: of the classes that share a run method only these count. None: all that are declared.

    Raises:
        RegistrationError: It is nothing of the kind, or the run method of several classes; or dynamic.
    """
    if isinstance(workflow, type):
        definition = workflow_definition(workflow)
        return type_name(definition), definition
    if isinstance(workflow, str):
        return workflow, None
    owners = _owners(workflow)
    if registered is not None:
        owners = [owner for owner in owners if not owner.name or _is_one(owner, registered.get(owner.name))]
    if len(owners) == 1:
        return type_name(owners[0]), owners[0]
    name: str = workflow.__qualname__
    if registered is not None and not owners:
        return name.rpartition(".")[0].rpartition("<locals>.")[2], None
    names = " and ".join(owner.cls.__qualname__ for owner in owners) or "no workflow class"
    raise RegistrationError(f"{name} is the run method of {names}: pass the class instead")


def _is_one(owner: WorkflowDefinition, registered: WorkflowDefinition | None) -> bool:
    """Whether this type is registered; the test kit's fake of it has its codec."""
    return registered is not None and registered.codec is owner.codec


def _owners(run: Any) -> list[WorkflowDefinition]:
    """The workflow types whose run method this is."""
    mark = getattr(run, "__dict__", {}).get(MARK)
    if isinstance(mark, Mark) and mark.kind == "run":
        return mark.owners
    what = getattr(run, "__qualname__", None) or repr(run)
    if inspect.iscoroutine(run):
        run.close()
        raise RegistrationError(
            f"{what}() was called: pass the workflow class and its arguments, as in spawn(Order, order)"
        )
    raise RegistrationError(
        f"{what} is neither a workflow class, nor the run method of one, nor the name of a workflow type"
    )
