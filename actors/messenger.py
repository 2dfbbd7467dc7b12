"""What handles do: find the run, check and encode the call, put it into the mailbox, decode the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..journal import events as ev
from ..journal.errors import JournalFullError
from ..journal.fold import RunState
from ..journal.payloads import Payload, PayloadConverter, total_size
from ..journal.run_ends import STATUS_OF, next_run
from ..journal.writer import settle
from . import descriptions
from .actor_coding import with_events
from .call_errors import WorkflowClosedError, WorkflowTypeError
from .chains import failure_left
from .dead_letters import find_letter
from .definitions import HandlerDefinition, WorkflowDefinition
from .descriptions import History, WorkflowDescription
from .errors import (
    ResultTimeoutError,
    UnknownHandlerError,
    UpdateCutError,
    UpdateFailedError,
    UpdateRejectedError,
    WorkflowCancelledError,
    WorkflowContinuedAsNewError,
    WorkflowFailedError,
    WorkflowNotRegisteredError,
    WorkflowTerminatedError,
)
from .failure_conversion import error_of
from .mailbox import ChainReply, Inspection, Mail, Query, UpdateReply
from .message_arguments import handler_name
from .options import check_request_id, check_text, microseconds, positive_count
from .outlook import outlook
from .publishing import check_key, encode_any
from .repeats import said
from .request_digests import request_digest
from .shard import Shard
from .stalls import refuse_stalled
from .succession import current_run, last_run
from .timing import Later
from .updates import UpdateHandle, WaitForStage, check_stage
from .workflow_actor import WorkflowActor

if TYPE_CHECKING:
    from .handles import ActorRef, OnStall


class Messenger:
    """Talks to the runs of one runtime on behalf of handles.

    Attributes:
        cluster: Name of the runtime, as addresses have it.
    """

    def __init__(
        self,
        cluster: str,
        open_shard: Callable[[], Shard],
        converter: PayloadConverter,
        workflows: Mapping[str, WorkflowDefinition],
    ) -> None:
        self.cluster = cluster
        self._open = open_shard
        self._converter = converter
        self._workflows = workflows

    def _message(
        self, ref: ActorRef[Any], kind: str, handler: Any, args: Sequence[Any]
    ) -> tuple[WorkflowActor, str, tuple[Payload, ...], HandlerDefinition | None]:
        """Find the run and the handler, and encode the arguments; nothing is written."""
        actor = current_run(self._open(), ref.workflow_id, ref.run_id)
        name = handler_name(kind, handler)
        self._check_type(ref, actor)
        definition = actor.definition or ref._definition
        found = None if definition is None else definition.handlers[kind].get(name)
        if found is not None:
            payloads, _ = found.codec.encode_args(self._converter, args)
            return actor, name, payloads, found
        if definition is not None:
            found = definition.dynamic.get(kind)
            if found is None and not definition.sets_handlers:
                raise UnknownHandlerError(kind, name, definition.name, list(definition.handlers[kind]))
        payloads = tuple(encode_any(self._converter, arg, f"argument of {kind} {name}") for arg in args)
        return actor, name, payloads, found

    @staticmethod
    def _check_type(ref: ActorRef[Any], actor: WorkflowActor) -> None:
        kind = actor.state.started.workflow_type
        if ref._definition is not None and ref._definition.name not in ("", kind):
            raise WorkflowTypeError(actor.workflow_id, kind, ref._definition.name)

    async def signal(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
        headers: tuple[ev.Header, ...] = (),
    ) -> None:
        """Send a signal; returns once it is durable."""
        request_id = check_request_id(request_id)
        actor, name, payloads, _ = self._message(ref, "signal", handler, args)
        digest = self._digest("signal", name, payloads) if request_id else b""
        self._admit(actor, payloads, request_id)
        await self._send(actor, ev.SignalReceived(name, payloads, request_id, digest, headers=headers))

    async def update(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
        headers: tuple[ev.Header, ...] = (),
    ) -> Any:
        """Send an update and wait for its answer."""
        actor, event, found = self._update(ref, handler, args, request_id, headers)
        return await self._answer(actor, event.name, found, await self._send(actor, event))

    async def start_update(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
        stage: WaitForStage,
        *,
        headers: tuple[ev.Header, ...] = (),
    ) -> UpdateHandle[Any]:
        """Send an update, and wait until it is accepted or answered."""
        check_stage(stage)
        actor, event, found = self._update(ref, handler, args, request_id, headers)
        finish = partial(self._answer, actor, event.name, found)
        reply = UpdateReply(self._open().loop)
        self._check_size(actor, event)
        actor.put(event, reply)
        try:
            await asyncio.wait(
                [reply] if stage == "completed" else [reply, reply.accepted],
                return_when=asyncio.FIRST_COMPLETED,
            )
        except BaseException:
            reply.cancel()  # nobody will ask for it: the run need not stay in memory for that
            raise
        if reply.done():
            answer = reply.result()
            if type(answer) is ev.UpdateFailed and answer.rejected:
                await finish(answer)
        else:
            reply.accepted.result()
        return UpdateHandle(
            reply,
            finish,
            workflow_id=actor.workflow_id,
            run_id=actor.run_id,
            name=event.name,
            request_id=event.request_id,
        )

    def _update(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
        headers: tuple[ev.Header, ...],
    ) -> tuple[WorkflowActor, ev.UpdateReceived, HandlerDefinition | None]:
        """Check and encode an update, and let it in; nothing is written."""
        request_id = check_request_id(request_id)
        actor, name, payloads, found = self._message(ref, "update", handler, args)
        digest = self._digest("update", name, payloads) if request_id else b""
        self._admit(actor, payloads, request_id)
        return actor, ev.UpdateReceived(name, payloads, request_id, digest, headers), found

    async def _answer(
        self, actor: WorkflowActor, name: str, found: HandlerDefinition | None, answer: Any
    ) -> Any:
        """Return what an update was answered with, or raise it."""
        if type(answer) is Payload:  # of a repeated request
            answer = ev.UpdateCompleted(0, answer)
        answer = await plain_event(actor, answer)
        match answer:
            case ev.UpdateCompleted():
                answer = answer.result
            case ev.UpdateFailed():
                cause = error_of(answer.failure, self._converter)
                if answer.rejected:
                    raise UpdateRejectedError(f"update {name!r} was rejected: {cause}") from cause
                raise UpdateFailedError(f"update {name!r} failed: {cause}") from cause
            case ev.WorkflowContinuedAsNew():
                raise UpdateCutError(
                    f"workflow {actor.workflow_id!r} continued as new before update {name!r} was done: send it again, "
                    f"with another request_id if it had one"
                )
            case _:
                status = STATUS_OF[type(answer)]
                raise UpdateCutError(
                    f"workflow {actor.workflow_id!r} is {status}: it ended before update {name!r} was done"
                )
        return found.codec.decode_result(self._converter, answer) if found else self._converter.decode(answer)

    async def query(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        limit: timedelta | float,
        headers: tuple[ev.Header, ...] = (),
    ) -> Any:
        """Ask a query."""
        actor, name, payloads, found = self._message(ref, "query", handler, args)
        if actor.definition is None:
            raise WorkflowNotRegisteredError(actor.state.started.workflow_type, list(self._workflows))
        reply: asyncio.Future[Any] = self._open().loop.create_future()
        actor.put(Query(name, payloads, headers), reply)
        seconds = microseconds("query timeout", limit) / 1_000_000
        if not await wait_within(reply, seconds, actor.shard.timing.later):
            reply.cancel()
            raise TimeoutError(
                f"query {name!r} of workflow {actor.workflow_id!r} had no answer within {seconds:g} s"
            )
        answer = reply.result()
        return found.codec.decode_result(self._converter, answer) if found else self._converter.decode(answer)

    async def cancel(self, ref: ActorRef[Any], reason: str) -> None:
        """Ask the run to cancel itself."""
        check_text("the reason", reason, may_be_empty=True)
        actor = current_run(self._open(), ref.workflow_id, ref.run_id)
        await self._put(actor, ev.CancelRequested(reason))

    async def terminate(self, ref: ActorRef[Any], reason: str) -> None:
        """End the run at once."""
        check_text("the reason", reason, may_be_empty=True)
        await self._put_first(ref, ev.WorkflowTerminated(reason))

    async def control(
        self,
        ref: ActorRef[Any],
        kind: type[ev.RunPaused | ev.RunResumed | ev.RunReleased],
        reason: str,
        request_id: str | None,
    ) -> None:
        """Pause, resume or release the run."""
        check_text("the reason", reason, may_be_empty=True)
        event = kind(reason, check_request_id(request_id))
        if event.request_id:
            event = msgspec.structs.replace(event, digest=self._digest(*said(event)))
        await self._put_first(ref, event)

    async def redrive(self, ref: ActorRef[Any], number: int) -> None:
        """Deliver a dead letter again."""
        positive_count("the number of a dead letter", number)
        shard = self._open()
        actor = shard.find(ref.workflow_id, ref.run_id)
        await self._put(actor, Inspection(_nothing))
        if actor.is_closed:
            raise WorkflowClosedError(actor.workflow_id, actor.run_id, actor.state.status)
        events = [event for _at, record in shard.durable_records(actor) for event in ev.events_of(record)]
        letter = find_letter(actor.workflow_id, number, enumerate(events, 1))
        if letter is None:
            return
        signal: ev.SignalReceived = await plain_event(actor, letter)
        # Two at a time are told apart as any repeated message is.
        request_id = f"redrive/{actor.run_id}/{number}"
        actor = self._open().find(actor.workflow_id, actor.run_id)
        self._admit(actor, signal.args, request_id)
        digest = self._digest("signal", signal.name, signal.args)
        again = ev.SignalReceived(signal.name, signal.args, request_id, digest, number, signal.headers)
        await self._send(actor, again)

    def _admit(self, actor: WorkflowActor, args: Sequence[Payload], request_id: str) -> None:
        """Let a message in, if there is room; one that writes nothing goes through to its answer."""
        shard = self._open()
        if actor.is_closed:
            return
        try:
            shard.intake.admit(total_size(args))
        except JournalFullError:
            if not request_id or shard.index.requests.find(actor.workflow_id, request_id) is None:
                raise

    def _digest(self, kind: str, name: str, payloads: Sequence[Payload]) -> bytes:
        return request_digest(kind, name, payloads, self._open().digest_key)

    async def _send(self, actor: WorkflowActor, event: ev.SignalReceived | ev.UpdateReceived) -> Any:
        self._check_size(actor, event)
        return await self._put(actor, event)

    @staticmethod
    def _check_size(actor: WorkflowActor, event: ev.SignalReceived | ev.UpdateReceived) -> None:
        shard = actor.shard
        size = total_size(event.args) + total_size(header.value for header in event.headers)
        if shard.coder is None and size > shard.sizes.quick:  # the others are checked as coded
            shard.sizes.check_event(event, actor.about)

    async def _put_first(self, ref: ActorRef[Any], event: Mail) -> None:
        shard = self._open()
        reply: asyncio.Future[Any] = shard.loop.create_future()
        current_run(shard, ref.workflow_id, ref.run_id).put_first(event, reply)
        await reply

    async def _put(self, actor: WorkflowActor, event: Mail) -> Any:
        reply: asyncio.Future[Any] = self._open().loop.create_future()
        actor.put(event, reply)
        return await reply

    async def describe(self, ref: ActorRef[Any]) -> WorkflowDescription:
        """Describe the run from its fold."""
        actor = self._open().find(ref.workflow_id, ref.run_id)
        seen: descriptions.Observation = await self._put(actor, Inspection(descriptions.observe))
        coder = actor.shard.coder
        if coder is not None:
            seen = await descriptions.readable(seen, coder, actor.about)
        described = descriptions.describe(seen, self._converter)
        return descriptions.with_statuses(described, actor.shard.index.status_of)

    async def published(self, ref: ActorRef[Any], key: str, hint: Any) -> Any:
        """A value that the run has published, by its type; None when there is none."""
        payload = (await self.all_published(ref, check_key(key))).get(key)
        if payload is None:
            return None
        return self._converter.decode(payload, hint, where=f"value published as {key!r} by {ref.workflow_id}")

    async def all_published(self, ref: ActorRef[Any], key: str | None = None) -> dict[str, Payload]:
        """What the run has published, or this key of it."""
        actor = self._open().find(ref.workflow_id, ref.run_id)
        events: Sequence[Any] = await self._put(actor, Inspection(descriptions.published_events))
        events = [event for event in events if key in (None, event.key)]
        coder = actor.shard.coder
        if coder is not None:
            events = await coder.decode(events, actor.about)
        return {event.key: event.value for event in events}

    async def history(self, ref: ActorRef[Any]) -> History:
        """Read the run's durable events."""
        shard = self._open()
        actor = shard.find(ref.workflow_id, ref.run_id)
        await self._put(actor, Inspection(_nothing))
        records = shard.durable_records(actor)
        if shard.coder is not None:
            events = [event for _at, record in records for event in ev.events_of(record)]
            records = with_events(records, await shard.coder.decode(events, actor.about))
        return History(actor.workflow_id, actor.run_id, records)

    async def result(
        self,
        ref: ActorRef[Any],
        limit: timedelta | float | None,
        on_stall: OnStall,
        *,
        follow_runs: bool = True,
    ) -> Any:
        """Wait for the outcome of the run, or of the chain that it belongs to, and return or raise it."""
        shard = self._open()
        seconds = None if limit is None else microseconds("result timeout", limit) / 1_000_000
        if on_stall not in ("raise", "wait"):
            raise ValueError(f"on_stall must be 'raise' or 'wait', not {on_stall!r}")
        actor = (current_run if follow_runs else Shard.find)(shard, ref.workflow_id, ref.run_id)
        if actor.state.started.chain is None:  # later runs may be of another type
            self._check_type(ref, actor)
        return await self._outcome_of(actor, ref._definition, seconds, on_stall, follow_runs=follow_runs)

    async def outcome(self, actor: WorkflowActor) -> Any:
        """The result of a run that was just started, as of ``result``."""
        shard = self._open()
        hint = actor.definition
        ended = actor.state.outcome
        is_stale = shard.actors.get(actor.key) is not actor if ended is None else next_run(ended) is not None
        if is_stale:  # a rebuild has made it anew, or another run follows
            actor = current_run(shard, actor.workflow_id, actor.run_id)
        return await self._outcome_of(actor, hint)

    async def _outcome_of(
        self,
        actor: WorkflowActor,
        hint: WorkflowDefinition | None,
        seconds: float | None = None,
        on_stall: OnStall = "raise",
        *,
        follow_runs: bool = True,
    ) -> Any:
        shard = actor.shard
        future: asyncio.Future[Any] = (
            ChainReply(loop=shard.loop) if follow_runs else shard.loop.create_future()
        )
        waiter = (future, on_stall == "raise")
        if actor.is_closed:
            actor.batch.answer(future, actor.state.outcome)
        elif actor.is_stalled and on_stall == "raise":
            refuse_stalled(actor, future)
        else:
            actor.result_waiters.append(waiter)
        try:
            if seconds is not None and not await wait_within(future, seconds, shard.timing.later):
                actor = last_run(shard, shard.find(actor.workflow_id, actor.run_id))  # perhaps made anew
                raise ResultTimeoutError(
                    f"workflow {actor.workflow_id!r} had no result within {seconds:g} s; {await outlook(actor)}"
                )
            outcome = await future
        finally:
            if not future.done() or future.cancelled():
                for holder in (actor, shard.newest.get(actor.workflow_id)):
                    if holder is not None and waiter in holder.result_waiters:
                        holder.result_waiters.remove(waiter)
        if follow_runs and next_run(actor.state.outcome) is not None:
            actor = last_run(self._open(), actor)
        if shard.coder is not None:
            outcome = await plain_event(actor, outcome)
        return self._outcome(actor, outcome, hint)

    def _outcome(self, actor: WorkflowActor, outcome: ev.Outcome, hint: WorkflowDefinition | None) -> Any:
        result = result_of(outcome, actor.workflow_id, actor.run_id, self._converter)
        definition = actor.definition or hint
        if definition is None:
            return self._converter.decode(result, where=f"result of {actor.workflow_id}")
        return definition.codec.decode_result(self._converter, result)


def result_of(outcome: ev.Outcome, workflow_id: str, run_id: str, converter: PayloadConverter) -> Payload:
    """The result that a run has ended with.

    Raises:
        WorkflowFailedError: It has ended in another way; the class and ``__cause__`` say how.
    """
    match outcome:
        case ev.WorkflowCompleted():
            return outcome.result
        case ev.WorkflowFailed():
            cause = error_of(outcome.failure, converter)
            message = f"{outcome.failure.type}: {outcome.failure.message}"
            raise WorkflowFailedError(workflow_id, run_id, message) from cause
        case ev.WorkflowCancelled():
            raise WorkflowCancelledError(workflow_id, run_id, outcome.reason or "no reason given")
        case ev.WorkflowTimedOut():
            failure = failure_left(outcome)
            assert failure is not None
            cause = error_of(failure, converter)
            raise WorkflowFailedError(workflow_id, run_id, f"{failure.type}: {cause}") from cause
        case ev.WorkflowContinuedAsNew():
            new_run_id = "" if outcome.next is None else outcome.next.run_id
            raise WorkflowContinuedAsNewError(workflow_id, run_id, new_run_id)
        case _:
            raise WorkflowTerminatedError(workflow_id, run_id, outcome.reason or "no reason given")


async def plain_event(actor: WorkflowActor, event: Any) -> Any:
    """An event of the run as its code made it; at once when there are no payload codecs.

    Raises:
        PayloadCodecError: It cannot be decoded.
    """
    coder = actor.shard.coder
    if coder is None:
        return event
    return (await coder.decode([event], actor.about))[0]


async def wait_within(future: asyncio.Future[Any], seconds: float, later: Later) -> bool:
    """Wait for a future without cancelling it; returns whether it is done in time."""
    if future.done():
        return True
    waiter = asyncio.get_running_loop().create_future()

    def over(_future: object = None) -> None:
        settle(waiter, None)

    timer = later.call_later(seconds, over)
    future.add_done_callback(over)
    try:
        await waiter
    finally:
        timer.cancel()
        future.remove_done_callback(over)
    return future.done()


def _nothing(_state: RunState) -> None:
    return None
