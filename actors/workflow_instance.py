"""One run's code in memory: the user's object, its tasks, and what it decides in each turn.

It knows neither journal nor runtime: events go in, outputs come out, live and in replay alike.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..journal import events as ev
from ..journal.child_events import HEARD
from ..journal.errors import PayloadDecodeError
from ..journal.fold import EMPTY
from ..journal.payloads import Payload, PayloadConverter
from ..journal.step_events import StepCompleted, StepFailed
from .answers import deliver_failure, deliver_result, fire_timer
from .asyncio_discard import TurnCrashed
from .asyncio_forbidden import read_only
from .checkpoints import StepReplay, arrive
from .child_commands import Relations, relations_of
from .commands import CommandFuture, Decode, DurableTimer
from .conditions import wake_conditions
from .context import in_main
from .continuation import ContinueAsNewError, RunEnds
from .definitions import ActivityDefinition, WorkflowDefinition
from .dynamic import undeclared
from .early_end import deliver_cancel, throw_cancel
from .errors import ActivityNotRegisteredError
from .event_loop import WorkflowLoop
from .handlers import MessageHandlers
from .options import LONGEST, ResolvedActivityOptions
from .places import user_place
from .randomness import DrawnRandom, Draws, Randomness
from .run_end import WorkflowCrashedError, close, end_by_handler, end_run, failed_outcome
from .saga_at_end import sagas_hold_end
from .saga_compensation import RunSagas
from .step_context import current_step, if_undone
from .turn_guard import Guard

if TYPE_CHECKING:
    from .interceptors import WorkflowOutboundInterceptor

log = logging.getLogger("everact.runtime")


class Delivery(NamedTuple):
    """One event on its way into the code.

    Attributes:
        number: Its event number.
        event: The event.
        was_received: It was journalled earlier, so an update's validator has not seen it yet.
    """

    number: int
    event: ev.Event
    was_received: bool = False


class WorkflowInstance:
    """A live instance of a run; the host of its loop.

    Attributes:
        outbound: The outermost interceptor of what goes out; None where there are none.
    """

    outbound: WorkflowOutboundInterceptor | None = None  # not in __slots__: see ``intercepted_runs``

    __slots__ = (
        "_activities",
        "_cancel_reason",
        "_conditions",
        "_context",
        "_converter",
        "_definition",
        "_main",
        "_object",
        "_outputs",
        "_places",
        "_randoms",
        "_reading_randoms",
        "_wall",
        "cancel_requested",
        "cancel_seen",
        "completion",
        "draws",
        "guard",
        "handlers",
        "has_diverged",
        "history_length",
        "is_crowded",
        "logs",
        "loop",
        "memo",
        "next_command",
        "now",
        "outcome",
        "pending",
        "places",
        "published",
        "read_only",
        "recorded",
        "relations",
        "replaying",
        "sagas",
        "started",
        "started_at",
        "steps",
        "timers",
        "undelivered",
        "waits",
        "workflows",
    )

    def __init__(
        self,
        definition: WorkflowDefinition,
        activities: Mapping[str, ActivityDefinition],
        converter: PayloadConverter,
        guard: Guard = "warn",
        workflows: Mapping[str, WorkflowDefinition] | None = None,
    ) -> None:
        self.workflows = {} if workflows is None else workflows
        self.relations: Relations | None = None  # hardly any run has to do with others
        self._definition = definition
        self._activities = activities
        self._converter = converter
        self.loop: WorkflowLoop = WorkflowLoop(self)  # type: ignore[abstract]  # the rest refuses at run time
        self.read_only = False
        self.guard = guard
        self.replaying = False
        self.started: ev.WorkflowStarted = None  # type: ignore[assignment]  # set by the first turn
        self.started_at = 0
        self.now = 0
        self._wall = 0
        self.next_command = 1
        self.sagas: RunSagas | None = None
        self.pending: dict[int, CommandFuture] = {}
        self.timers: dict[int, DurableTimer] = {}
        self.places: dict[int, str] = {}  # of commands, while replaying
        self.recorded: dict[int, ev.SideEffectRecorded] = EMPTY  # of the turn that is replayed
        self.has_diverged = False  # it asked in replay for what the journal does not have
        self.memo: dict[str, Payload] = EMPTY
        self.published: dict[str, int] | None = None  # sizes by key; most runs publish nothing
        self.handlers: MessageHandlers = MessageHandlers(self)
        self.is_crowded = False  # several events are delivered in this turn
        self.steps: StepReplay | None = None  # made by a replay that meets one
        self.cancel_requested: bool = False
        self.cancel_seen: bool = False  # it was thrown into main
        self.history_length = 0  # events up to the one that is delivered, as the host says
        self.undelivered: frozenset[int] = frozenset()  # numbers of what the last turn has left
        self._cancel_reason = ""
        self.outcome: ev.Outcome | None = None
        self.completion: Payload | None = None  # the result that ``workflow.complete`` was given
        self.logs: list[logging.LogRecord] = []
        self._outputs: list[Any] = []
        self._conditions: dict[asyncio.Future[None], tuple[Callable[[], object], Context]] = {}
        self._places: dict[asyncio.Future[None], int] = {}
        self.waits = 0
        self._randoms: Randomness | None = None
        self._reading_randoms: Randomness | None = None
        self.draws: Draws | None = None  # of the present turn
        # Its own: what the sender of a message has in its context must not reach the code.
        self._context = Context()
        self._object: Any = None
        self._main: asyncio.Task[Any] | None = None

    # --- turns

    def turn(self, at: int, deliveries: Sequence[Delivery]) -> list[Any]:
        """Deliver events and let the code run until it is idle.

        Args:
            at: Wall clock of the turn, microseconds.
            deliveries: Usually one event. More: the first turn with messages that came before it, or the last
                messages together with the input that ends the run (R1 b).

        Returns:
            The outputs, in program order; the outcome last when the run has ended.

        Raises:
            WorkflowCrashedError: The turn is to be discarded, and this instance with it.
        """
        return self._context.run(self._turn, at, deliveries)

    def _turn(self, at: int, deliveries: Sequence[Delivery]) -> list[Any]:
        self._wall = at
        self.now = max(self.now, at)
        self._outputs = []
        self.draws = None
        try:
            with self.loop:
                delivery = deliveries[-1]
                try:
                    if type(deliveries[0].event) is ev.WorkflowStarted:
                        self._first_turn(deliveries)
                    else:
                        self.is_crowded = len(deliveries) > 1
                        for delivery in deliveries:
                            _DELIVER[type(delivery.event)](self, delivery)
                            self.loop.run_until_idle()
                    self._settle()
                    main = self._main
                    if (
                        self.outcome is None
                        and main is not None
                        and (main.done() or self.completion is not None)
                        and (
                            self.sagas is None
                            or self.completion is not None
                            or not sagas_hold_end(self, main)
                        )
                    ):
                        self.loop.close_generators()
                        end_run(self, main)
                except RunEnds as end:
                    end_by_handler(self, end, deliveries, end.at or delivery)
                draws: Draws | None = self.draws
                if draws is not None:
                    self._record_draws(draws)
        except (WorkflowCrashedError, KeyboardInterrupt):
            raise
        except PayloadDecodeError as error:
            raise WorkflowCrashedError("held", error) from error
        except TurnCrashed as crash:
            raise WorkflowCrashedError("quarantined", crash.error) from crash.error
        except BaseException as error:
            raise WorkflowCrashedError("quarantined", error) from error
        return self._outputs

    def _first_turn(self, deliveries: Sequence[Delivery]) -> None:
        started = deliveries[0].event
        assert isinstance(started, ev.WorkflowStarted)
        self.started = started
        if started.memo_names:
            self.memo = dict(zip(started.memo_names, started.memo, strict=True))
        self.started_at = self.started_at or self.now
        args, _ = self._definition.codec.decode_args(self._converter, started.args)
        try:
            self._object = self._make_object(args)
        except ContinueAsNewError as error:
            raise RunEnds(error, deliveries[0]) from None
        except Exception as error:  # noqa: BLE001  (as if run had raised it)
            self.outcome = failed_outcome(self, error)
            self._outputs += [self.handlers.refused(delivery, error) for delivery in deliveries[1:]]
            close(self)
            return
        for delivery in deliveries[1:]:
            try:
                _DELIVER[type(delivery.event)](self, delivery)
                self.loop.run_until_idle()
            except RunEnds as end:
                end.at = delivery
                raise
        if self._definition.takes_args:  # main gets its own copies
            args, _ = self._definition.codec.decode_args(self._converter, started.args)
        token = in_main.set(True)
        self._main = self.loop.create_task(self._definition.run(self._object, *args), name="main")
        in_main.reset(token)
        if self.cancel_requested:  # by ``__init__`` or an early message
            self.loop.call_soon(throw_cancel, self)
        self.loop.run_until_idle()

    def _make_object(self, args: Sequence[Any]) -> Any:
        cls = self._definition.cls
        return cls(*args) if self._definition.takes_args else cls()

    def _settle(self) -> None:
        while self._conditions and wake_conditions(self):
            self.loop.run_until_idle()

    def _log(self, level: int, message: str, error: BaseException | None = None) -> None:
        """Log something about the run once its turn is durable; never on replay."""
        if not self.replaying:
            text = f"workflow {self.started.workflow_id!r} (run {self.started.run_id}) {message}"
            about = None if error is None else (type(error), error, error.__traceback__)
            self.logs.append(log.makeRecord(log.name, level, __file__, 0, text, (), about))

    @property
    def main(self) -> asyncio.Task[Any] | None:
        """The task of run, once it has begun."""
        return self._main

    @property
    def has_begun(self) -> bool:
        """Whether the user's object was made and run was entered."""
        return self._main is not None

    def discard(self) -> int:
        """Drop the code from memory without letting it act; returns how many of its coroutines refused to end."""
        main = self._main
        is_over = main is not None and main.done() and not self.loop.has_tasks
        refused = self.loop.discard()
        if is_over:
            # Nothing of it is in flight: without its cycles it is freed now, not when the collector comes by.
            self._main = self._object = self.relations = None
            del self.handlers, self._context, self.loop.host
        return refused

    # --- deliveries

    def _deliver_released(self, _delivery: Delivery) -> None:
        if self.sagas is not None:
            self.sagas.released()

    # --- what workflow code calls

    def schedule_activity(
        self,
        definition: ActivityDefinition,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None,
        options: dict[str, Any],
        decode: Decode | None = None,
        *,
        depth: int = 2,
        encoded: tuple[tuple[Payload, ...], tuple[str, ...]] | None = None,
        repeats: int = 0,
        make: Callable[..., CommandFuture] = CommandFuture,
        headers: tuple[ev.Header, ...] = (),
    ) -> CommandFuture:
        """Number and record an activity command; called ``depth`` frames below the user's code.

        With ``encoded`` arguments those count; ``repeats`` as of ``ActivityScheduled``.
        """
        if self.loop.discarded:
            return self.loop.refuse()
        name = definition.name
        if self.read_only:
            raise read_only(f"activity {name!r}")
        registered = self._activities.get(name)  # what will run: its signature counts
        if registered is None:
            registered = undeclared(definition, self._activities)
        resolved: ResolvedActivityOptions = definition.options
        if options:
            resolved = resolved.overridden(options)
        step = current_step.get()
        if step is not None:
            step = if_undone(step)
        cancellation = resolved.cancellation
        if cancellation is None:
            cancellation = ev.TRY_CANCEL if step is None else ev.WAIT_COMPLETED
        payloads, keywords = encoded or registered.codec.encode_args(self._converter, args, kwargs)
        command = self.next_command
        self.next_command = command + 1
        self._outputs.append(
            ev.ActivityScheduled(
                command,
                name,
                payloads,
                resolved.start_to_close,
                resolved.retry,
                keywords,
                resolved.limits,
                repeats,
                headers,
            )
        )
        if self.replaying:
            self.places[command] = user_place()
        frame = sys._getframe(depth)
        place: tuple[CodeType, int] = (frame.f_code, frame.f_lineno)
        if decode is None:
            decode = registered.codec.result_decoder(self._converter)
        label = f"activity {name!r}"
        future = make(self, command, label, decode, place, cancellation=cancellation)
        future.step = step
        self.pending[command] = future
        return future

    def activity_named(self, name: str) -> ActivityDefinition:
        """The registered activity of this name.

        Raises:
            ActivityNotRegisteredError: There is none.
        """
        definition = self._activities.get(name)
        if definition is None:
            raise ActivityNotRegisteredError(name, list(self._activities))
        return definition

    def cancel_activity(self, command: int, mode: int) -> None:
        """Record that an activity is no longer wanted; ``mode`` as of ``ActivityCancelRequested``."""
        if self.read_only:
            raise read_only("cancel()")
        if self.loop.discarded or command not in self.pending:
            return
        if mode not in ev.WAITING:
            del self.pending[command]
        if mode == ev.ABANDON and any(
            type(event) is ev.ActivityScheduled and event.command == command for event in self._outputs
        ):
            mode = ev.TRY_CANCEL  # there is nothing yet to let go on (R10)
        self._outputs.append(ev.ActivityCancelRequested(command, mode))

    def start_timer(
        self, delay: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> DurableTimer:
        """Number and record a timer (for the loop).

        Raises:
            ValueError: It is longer than a century.
        """
        if delay > LONGEST.total_seconds():
            raise ValueError(f"a delay must be between 0 and 100 years, not {delay!r} s")
        duration = max(1, round(delay * 1_000_000))
        return self._start_timer(duration, self._wall + duration, callback, args, context)

    def start_timer_until(self, moment: int, callback: Callable[..., object], *args: Any) -> DurableTimer:
        """Number and record a timer that is due at a wall-clock time, in microseconds."""
        return self._start_timer(moment - self.now, moment, callback, args, copy_context())

    def _start_timer(
        self,
        duration: int,
        deadline: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> DurableTimer:
        command = self.next_command
        self.next_command = command + 1
        self._outputs.append(ev.TimerStarted(command, duration, deadline))
        if self.replaying:
            self.places[command] = user_place()
        timer = self.timers[command] = DurableTimer(self, command, callback, args, context)
        return timer

    def cancel_timer(self, command: int) -> None:
        """Record that a timer is no longer wanted."""
        if self.read_only:
            raise read_only("cancel()")
        if not self.loop.discarded and self.timers.pop(command, None) is not None:
            self._outputs.append(ev.TimerCancelled(command))

    def random(self, stream: str) -> random.Random:
        """A named stream of random numbers, the same in each replay; queries get one of their own."""
        if self.read_only:
            self._reading_randoms = self._reading_randoms or Randomness()
            return self._reading_randoms.stream(stream, f"{self.started.run_id}/query/{self.now}/{stream}")
        return self.stream(stream)

    def stream(self, name: str) -> DrawnRandom:
        """A stream of the run's own."""
        self._randoms = self._randoms or Randomness(self._note_draw)
        return self._randoms.stream(name, f"{self.started.run_id}/{name}")

    def _record_draws(self, draws: Draws) -> None:
        at_end = len(self._outputs) - (self.outcome is not None)  # the outcome is the last one
        self._outputs.insert(at_end, draws.event())

    def _note_draw(self, stream: str) -> None:
        if self.read_only:
            raise read_only("a draw from a random stream of the run")
        if self.draws is None:
            self.draws = Draws()
        self.draws.add(stream, self.next_command, user_place() if self.replaying else "")

    def loop_time(self) -> float:
        """Seconds since the run's start, of the event being delivered."""
        return (self.now - self.started_at) / 1_000_000

    def loop_exception(self, context: dict[str, Any]) -> None:
        """Log what no code has caught; the run goes on."""
        if self.started is not None:
            error = context.get("exception")
            self._log(
                logging.ERROR,
                str(context.get("message")),
                error if isinstance(error, BaseException) else None,
            )


_Deliver = Callable[[WorkflowInstance, Delivery], None]
_DELIVER: dict[type, _Deliver] = {
    ev.ActivityCompleted: deliver_result,
    ev.ActivityFailed: deliver_failure,
    ev.ActivityCancelled: deliver_result,
    ev.TimerFired: fire_timer,
    ev.CancelRequested: deliver_cancel,
    ev.RunReleased: WorkflowInstance._deliver_released,
    ev.SignalReceived: lambda run, delivery: run.handlers.signal(delivery),
    ev.UpdateReceived: lambda run, delivery: run.handlers.update(delivery),
    StepCompleted: arrive,
    StepFailed: arrive,
    **dict.fromkeys(HEARD, lambda run, delivery: relations_of(run).heard(delivery.event)),
}
