"""What one run has going with others: its children, and its messages on their way; live and in replay alike.

Every command is numbered at the call, and its future is awaited like that of an activity. Only runs that have to do
with others have one of these.
"""

from __future__ import annotations

import asyncio
import sys
from hashlib import blake2b
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..journal import child_events as ce
from ..journal import events as ev
from ..journal.payloads import Payload
from .asyncio_forbidden import read_only
from .child_errors import child_failure, external_failure
from .commands import CommandFuture, Decode
from .failure_conversion import error_of
from .memos import Memo
from .places import user_place
from .start_options import Carried

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance


def started_run_id(run_id: str, command: int) -> str:
    """The run id of what a command of a run starts: known at the call, and the same in every replay."""
    return blake2b(f"{run_id}/{command}".encode(), digest_size=16).hexdigest()


class ChildFuture(CommandFuture):
    """The result of a child.

    Attributes:
        start: As it is recorded.
        starting: Who waits for its start; None when nobody does, or it has started.
        is_withdrawn: The code that waits for it was cancelled; with ``wait_cancellation_completed`` it waits on.
        is_asked: The child was asked to cancel.
    """

    __slots__ = ("_relations", "is_asked", "is_withdrawn", "start", "starting")

    def __init__(
        self,
        relations: Relations,
        scheduled: ce.ChildScheduled,
        decode: Decode,
        place: tuple[CodeType, int],
        cancellation: int,
    ) -> None:
        start = scheduled.start
        label = f"child workflow {start.workflow_type!r}"
        super().__init__(relations.host, scheduled.command, label, decode, place, cancellation=cancellation)
        self._relations = relations
        self.start = start
        self.starting: ChildStart | None = None
        self.is_withdrawn = False
        self.is_asked = False

    def cancel(self, msg: Any | None = None) -> bool:
        """Do to the child what its ``cancellation_type`` says; a second time does nothing."""
        if self.done():
            return False
        self._awaited = True
        if self._relations.withdraw(self):
            return asyncio.Future.cancel(self, msg)
        self._put_off()
        return True

    def is_held_by_handle(self) -> None:
        """Nobody must await it: whoever has a handle may let the child be."""
        self._awaited = True


def child_error(child: ChildFuture, event: Any) -> Exception:
    """What the parent's code gets for a child without a result; ``event`` as of ``child_failure``."""
    start, converter = child.start, child._host._converter
    failure = child_failure(event, start.workflow_id, start.run_id, start.workflow_type, converter)
    return error_of(failure, converter)


class ChildStart(CommandFuture):
    """The start of a child; its result is the handle."""

    __slots__ = ("_child", "handle")

    def __init__(self, child: ChildFuture, handle: Any, place: tuple[CodeType, int]) -> None:
        super().__init__(child._host, child.command, f"the start of {child.label}", _no_payload, place)
        self._child = child
        self.handle = handle

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the child, in the way of its ``cancellation_type``."""
        if self.done():
            return False
        self._awaited = True
        if self._child.done() or self._child._relations.withdraw(self._child):
            asyncio.Future.cancel(self._child)
            return asyncio.Future.cancel(self, msg)
        self._put_off()
        return True


class MessageFuture(CommandFuture):
    """The answer to a message: done once its receiver has it, durably.

    Attributes:
        what: The message, for people.
        workflow_id: Where it went.
        run_id: The run that it was for; empty for the newest.
        value: What awaiting it gives; None, or the handle of what was started.
    """

    __slots__ = ("_relations", "run_id", "value", "what", "workflow_id")

    def __init__(
        self,
        relations: Relations,
        command: int,
        what: str,
        to: tuple[str, str],
        place: tuple[CodeType, int],
    ) -> None:
        super().__init__(relations.host, command, what, _no_payload, place)
        self._relations = relations
        self.what = what
        self.workflow_id, self.run_id = to
        self.value: Any = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Wait no more; what was sent is on its way."""
        if self.done():
            return False
        self._awaited = True
        self._relations.messages.pop(self.command, None)
        return asyncio.Future.cancel(self, msg)


def _no_payload(payload: Payload) -> Any:
    raise AssertionError(payload)


class Relations:
    """The children and messages of one run's code.

    Attributes:
        host: The run.
        children: Those whose end the code waits for, or may, by command number.
        messages: Those that are not answered, by command number.
    """

    __slots__ = ("_new", "_turn", "children", "host", "messages")

    def __init__(self, host: WorkflowInstance) -> None:
        self.host = host
        self.children: dict[int, ChildFuture] = {}
        self.messages: dict[int, MessageFuture] = {}
        self._turn: list[Any] | None = None
        self._new: set[int] = set()

    @property
    def is_quiet(self) -> bool:
        """Whether the code waits for nothing of them."""
        return not self.children and not self.messages

    # --- commands

    def _command(self) -> int:
        host = self.host
        command = host.next_command
        host.next_command = command + 1
        if host.replaying:
            host.places[command] = user_place()
        return command

    def begin_start(
        self,
        workflow_type: str,
        workflow_id: str | None,
        args: tuple[Payload, ...],
        memo: Memo,
        carried: Carried,
        *,
        headers: tuple[ev.Header, ...] = (),
    ) -> tuple[int, ev.WorkflowStarted]:
        """Number the start of another run; without a workflow id it gets one of this run and the command."""
        command = self._command()
        mine = self.host.started.run_id
        run_id = started_run_id(mine, command)
        return command, ev.WorkflowStarted(
            workflow_id or f"{mine}-{command}",
            run_id,
            workflow_type,
            args,
            memo_names=memo[0],
            memo=memo[1],
            options=carried.options,
            begins_at=carried.begins_at,
            headers=headers,
        )

    def schedule(
        self, scheduled: ce.ChildScheduled, decode: Decode, cancellation: int, *, depth: int
    ) -> ChildFuture:
        """Record the start of a child; called ``depth`` frames below the user's code."""
        outputs = self.host._outputs
        if self._turn is not outputs:
            self._turn, self._new = outputs, set()
        self._new.add(scheduled.command)
        outputs.append(scheduled)
        frame = sys._getframe(depth)
        place = (frame.f_code, frame.f_lineno)
        child = self.children[scheduled.command] = ChildFuture(self, scheduled, decode, place, cancellation)
        return child

    def withdraw(self, child: ChildFuture) -> bool:
        """The code that waits for a child was cancelled; returns whether it waits no more."""
        host = self.host
        if host.loop.discarded:
            return True
        if host.read_only:
            raise read_only("cancel()")
        if child.command not in self.children:
            return True
        mode = child.cancellation
        if child.command in self._new and self._turn is host._outputs:
            mode = ce.NEVER_SENT
        if not child.is_withdrawn and not (child.is_asked and mode != ev.ABANDON):
            child.is_asked = mode != ev.ABANDON
            host._outputs.append(ce.ChildCancelRequested(child.command, mode))
        child.is_withdrawn = True
        if mode == ev.WAIT_CANCELLED:
            return False
        del self.children[child.command]
        return True

    def ask_to_cancel(self, child: ChildFuture, reason: str) -> None:
        """Ask a child to cancel, and go on waiting for it."""
        host = self.host
        if host.read_only:
            raise read_only("cancel()")
        if host.loop.discarded or child.done() or child.is_asked or child.command not in self.children:
            return
        child.is_asked = True
        host._outputs.append(ce.ChildCancelRequested(child.command, ev.WAIT_CANCELLED, reason))

    def send_signal(
        self,
        workflow_id: str,
        run_id: str,
        name: str,
        args: tuple[Payload, ...],
        *,
        child: int = 0,
        headers: tuple[ev.Header, ...] = (),
        depth: int = 3,
    ) -> MessageFuture:
        """Record a signal to another run; called ``depth`` frames below the user's code."""
        command = self._command()
        self.host._outputs.append(ce.SignalSent(command, workflow_id, run_id, name, args, child, headers))
        what = f"signal {name!r} to workflow {workflow_id!r}"
        return self._message(command, what, workflow_id, run_id, depth + 1)

    def send_cancel(self, workflow_id: str, run_id: str, reason: str) -> MessageFuture:
        """Record a request to another run to cancel itself."""
        command = self._command()
        self.host._outputs.append(ce.CancelSent(command, workflow_id, run_id, reason))
        what = f"the request to workflow {workflow_id!r} to cancel"
        return self._message(command, what, workflow_id, run_id, 3)

    def start_detached(self, event: ce.DetachedStart, *, depth: int) -> MessageFuture:
        """Record the start of a run without a parent; called ``depth`` frames below the user's code."""
        self.host._outputs.append(event)
        start = event.start
        what = f"the start of workflow {start.workflow_id!r} ({start.workflow_type})"
        return self._message(event.command, what, start.workflow_id, start.run_id, depth + 1)

    def _message(self, command: int, what: str, workflow_id: str, run_id: str, depth: int) -> MessageFuture:
        frame = sys._getframe(depth)
        place = (frame.f_code, frame.f_lineno)
        future = self.messages[command] = MessageFuture(self, command, what, (workflow_id, run_id), place)
        return future

    # --- what is heard of them

    def heard(self, event: Any) -> None:
        """Take in one of ``HEARD``; nobody may be waiting for it any more."""
        if type(event) in ce.MESSAGE_ENDS:
            self._answered(event)
        elif type(event) is ce.ChildStarted:
            child = self.children.get(event.command)
            if child is not None and not child.is_withdrawn:
                self._has_started(child)
        else:
            child = self.children.pop(event.command, None)
            if child is not None:
                self._ended(child, event)

    def _has_started(self, child: ChildFuture) -> None:
        starting, child.starting = child.starting, None
        if starting is not None and not starting.done():
            starting.set_result(starting.handle)

    def _ended(self, child: ChildFuture, event: Any) -> None:
        starting = child.starting
        if type(event) is ce.ChildCompleted:
            child.set_result(child.decode(event.result))
            self._has_started(child)
            return
        if type(event) is ce.ChildCancelled and child.is_withdrawn:
            child.end_cancelled()
            if starting is not None and not starting.done():
                starting.end_cancelled()
            return
        error = child_error(child, event)
        child.set_exception(error)
        child._log_traceback = False  # the failure is in the history
        if starting is not None and not starting.done():
            if type(event) is ce.ChildStartFailed:
                starting.set_exception(error)
                starting._log_traceback = False
            else:
                self._has_started(child)
        child.starting = None

    def _answered(self, event: ce.MessageDelivered | ce.MessageFailed) -> None:
        future = self.messages.pop(event.command, None)
        if future is None:
            return
        if type(event) is ce.MessageDelivered:
            if future.value is not None:  # the handle of what was started, or found
                future.value.run_id = event.run_id
            future.set_result(future.value)
            return
        assert isinstance(event, ce.MessageFailed)
        converter = self.host._converter
        failure = external_failure(event, future.what, future.workflow_id, future.run_id, converter)
        future.set_exception(error_of(failure, converter))
        future._log_traceback = False

    def clear(self) -> None:
        """The code has ended: commands that nobody has awaited say so now."""
        self.children.clear()
        self.messages.clear()


def relations_of(host: WorkflowInstance) -> Relations:
    """What a run has going with others."""
    if host.relations is None:
        host.relations = Relations(host)
    return host.relations


def refuse_reading(host: WorkflowInstance, what: str) -> None:
    """Refuse a command in a query or a validator."""
    if host.read_only:
        raise read_only(what)
