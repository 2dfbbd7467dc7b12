"""The arguments of a step: its body gets copies, as a replay that skips it could not repeat what it does to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..journal.errors import PayloadEncodeError
from ..journal.payloads import Payload
from .object_fields import SCALARS
from .step_definitions import StepDefinition

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance


#: Types whose values need no copy.
_UNCHANGING = SCALARS | {float}


class StepArguments:
    """The arguments of a call: each use gets copies, so that what the body does to them is its own affair.

    Attributes:
        error: Why they could not be copied: then each use gets what the caller holds, and the step is no checkpoint.
    """

    __slots__ = ("_args", "_codec", "_converter", "_keywords", "_kwargs", "_payloads", "error")

    def __init__(
        self,
        instance: WorkflowInstance,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._args = args
        self._kwargs = kwargs
        self._codec = definition.codec
        self._converter = instance._converter
        self._payloads: tuple[Payload, ...] | None = None
        self._keywords: tuple[str, ...] = ()
        self.error: PayloadEncodeError | None = None
        self._codec.hints.bind(args, kwargs)
        if all(type(value) in _UNCHANGING for value in (*args, *kwargs.values())):
            return
        try:
            self._payloads, self._keywords = self._codec.encode_args(self._converter, args, kwargs)
        except PayloadEncodeError as error:
            self.error = error

    def take(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments for one call."""
        if self._payloads is None:
            return self._args, self._kwargs
        args, kwargs = self._codec.decode_args(self._converter, self._payloads, self._keywords)
        return tuple(args), kwargs
