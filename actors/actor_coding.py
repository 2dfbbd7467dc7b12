"""One run and the payload codecs: what comes in is encoded before its turn, what a turn decides before it is written.

Code and callers see plain values; the journal and the fold hold coded ones. While payloads of a run are on their way
through slow codecs the run is paused: its mail waits, the others go on. Whatever comes back is taken up in the pump,
as any turn, so that a failed commit finds everything either written or still to be done (R5).

Runs of a runtime without codecs have none of this.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..journal import events as ev
from ..journal.coded_fields import CODED_FIELDS, About
from ..journal.errors import PayloadCodecError, PayloadTooLargeError
from ..journal.failures import Failure
from ..journal.writer import Raise, settle
from .appending import append, encoded
from .attempt_outcomes import too_large
from .event_coder import EventCoder
from .loading import NotReadableError
from .mailbox import MESSAGES, OUTCOMES, Mail, Reply
from .restarts import crash_over
from .run_end import WorkflowCrashedError
from .stalls import append_stall, stall_failure

if TYPE_CHECKING:
    from .attempts import Attempt
    from .workflow_actor import WorkflowActor

log = logging.getLogger("everact.runtime")

Result = list[Any] | PayloadCodecError

#: Mail that is encoded before its turn. Why a run stands still is encoded when that is written.
ENCODED = frozenset(CODED_FIELDS) - {ev.RunStalled}


class PausedError(Exception):
    """What the turn needs is on its way through the codecs; the turn begins again when it is there."""


class Incoming:
    """A piece of mail on its way into the mailbox.

    Attributes:
        coding: Whose it is; None when nobody wants it any more.
        event: As it came, plain.
        coded: As it will be stored, or why it cannot be; None while it is on its way.
        is_older: The run was released meanwhile: when this fails, it is tried again.
    """

    __slots__ = ("coded", "coding", "event", "is_older", "reply")

    def __init__(self, coding: ActorCoding, event: Mail, reply: Reply) -> None:
        self.coding: ActorCoding | None = coding
        self.event: Any = event
        self.reply = reply
        self.coded: Any = None
        self.is_older = False

    def done(self, event: Mail, result: Result) -> None:
        """The codecs have answered for ``event``."""
        if self.coding is not None and event is self.event:
            self.coded = result if isinstance(result, PayloadCodecError) else result[0]
            self.coding.admit()


class Job:
    """What a paused run waits for.

    Attributes:
        finish: Called in the pump with the codecs' result.
        mail: What the turn was about, to be handled again if this comes to nothing.
        is_writing: A record is made of the result, with the number that follows now.
        result: None while it is on its way.
    """

    __slots__ = ("finish", "is_writing", "mail", "result")

    def __init__(
        self, finish: Callable[[Result], None], mail: tuple[Mail, Reply] | None, *, is_writing: bool
    ) -> None:
        self.finish = finish
        self.mail = mail
        self.is_writing = is_writing
        self.result: Result | None = None


class ActorCoding:
    """The codecs' side of one run.

    Attributes:
        stall: The plain failure of its stall, once it is known here.
    """

    __slots__ = (
        "_actor",
        "_coded",
        "_coder",
        "_followers",
        "_history",
        "_incoming",
        "_job",
        "_older",
        "_refused_outcomes",
        "_unread",
        "stall",
    )

    def __init__(self, actor: WorkflowActor, coder: EventCoder) -> None:
        self._actor = actor
        self._coder = coder
        self._incoming: deque[Incoming] = deque()
        # By id; each entry holds its event, so that the id stays its own.
        self._coded: dict[int, tuple[Any, Any]] = {}
        self._job: Job | None = None
        self._history: Result | None = None
        self._unread: dict[int, Any] = {}
        self._refused_outcomes: list[Any] = []
        self._followers: list[ActorCoding] = []
        self._older: dict[int, Attempt] = {}
        self.stall: Failure | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the run is on its way through the codecs."""
        return self._job is None and not self._incoming and not self._followers

    @property
    def is_writing(self) -> bool:
        """Whether a record is on its way that no other may come before."""
        return self._job is not None and self._job.is_writing

    # --- mail

    def put(self, event: Mail, reply: Reply) -> None:
        """Take mail in, in order, each as soon as it and all before it are encoded."""
        incoming = Incoming(self, event, reply)
        self._incoming.append(incoming)
        if type(event) in ENCODED:
            self._encode(incoming)
        else:
            incoming.coded = event
            self.admit()

    def _encode(self, incoming: Incoming) -> None:
        event = incoming.event
        self._coder.start("encode", [event], partial(incoming.done, event), self._actor.about)

    def admit(self) -> None:
        """Move what is ready at the head of the queue into the mailbox."""
        while self._incoming and self._incoming[0].coded is not None:
            incoming = self._incoming[0]
            coded = incoming.coded
            if type(coded) is ev.WorkflowStarted and self._follows():
                return
            if type(coded) in ENCODED:
                try:
                    self._actor.shard.sizes.check_event(coded, self._actor.about)
                except PayloadTooLargeError as error:
                    coded = error
            if isinstance(coded, PayloadCodecError | PayloadTooLargeError):
                if not self._refused(incoming, coded):
                    return
                continue
            self._incoming.popleft()
            if type(coded) in ENCODED:
                self._coded[id(incoming.event)] = incoming.event, coded
            self._actor.mailbox.append((incoming.event, incoming.reply))
            self._call_pump()

    def _follows(self) -> bool:
        """Whether this start replaces one that is still on its way: it comes behind that one."""
        replaced = self._actor.replaces
        if replaced is None or replaced.state.last_event or replaced.coding is None:
            return False
        if self not in replaced.coding._followers:
            replaced.coding._followers.append(self)
        return True

    def let_follow(self) -> None:
        """The run has started, or never will: who is to replace it may come in."""
        followers, self._followers = self._followers, []
        for follower in followers:
            if not self._actor.state.last_event:
                follower._actor.replaces = None
            follower.admit()

    def _refused(self, incoming: Incoming, error: PayloadCodecError | PayloadTooLargeError) -> bool:
        """What becomes of mail that cannot be stored; returns whether the next one may follow."""
        actor, event = self._actor, incoming.event
        if type(event) in OUTCOMES and isinstance(error, PayloadTooLargeError):
            incoming.event = too_large(actor, event, error)
            actor.outcomes[event.command] = incoming.event
            incoming.coded = None
            self._encode(incoming)
            return bool(incoming.coded)
        if type(event) in OUTCOMES and incoming.is_older:
            incoming.is_older = False
            incoming.coded = None
            self._encode(incoming)
            return bool(incoming.coded)
        self._incoming.popleft()
        if type(event) in MESSAGES:
            if incoming.reply is not None:
                settle(incoming.reply, Raise(error))
        elif type(event) is ev.WorkflowStarted:
            actor.shard.forget(actor)
            if incoming.reply is not None:
                settle(incoming.reply, Raise(error))
            actor.let_go(error)
        elif type(event) in OUTCOMES:
            # What the activity has done is not asked for twice in one life, and it cannot be kept.
            self._refused_outcomes.append(event)
            failure = stall_failure(error, actor)
            self.put(ev.RunStalled("held", failure), None)
            if incoming.reply is not None:
                settle(incoming.reply, Raise(error))
        elif type(event) is ev.AttemptNoted:
            text = "workflow %r: the heartbeat of activity command %d is not kept: %s"
            log.warning(text, actor.workflow_id, event.command, error)
            if incoming.reply is not None:
                settle(incoming.reply, Raise(error))
        return True

    def try_again(self) -> None:
        """The run is released: what the codecs have failed at is tried again, and so is what they still fail at.

        A failure of before, wherever it is on its way, must not stop the run once more.
        """
        mailbox = self._actor.mailbox
        if any(type(event) is ev.RunStalled for event, _reply in mailbox):
            kept = [mail for mail in mailbox if type(mail[0]) is not ev.RunStalled]
            mailbox.clear()
            mailbox.extend(kept)
        self._incoming = deque(one for one in self._incoming if type(one.event) is not ev.RunStalled)
        for incoming in self._incoming:
            incoming.is_older = True
        self._older = dict(self._actor.attempts)
        events, self._refused_outcomes = self._refused_outcomes, []
        for event in events:
            if not self._actor.is_stale(event):
                self.put(event, None)

    def is_older(self, attempt: Attempt) -> bool:
        """Whether an attempt was in hand when the run was released; asked once, as it is over."""
        return bool(self._older) and self._older.pop(attempt.scheduled.command, None) is attempt

    def handled(self, event: Any) -> None:
        """A piece of mail has had its turn: what would be stored for it is needed no more, or by its job only."""
        self._history = None
        if self._job is None or self._job.mail is None or self._job.mail[0] is not event:
            self._coded.pop(id(event), None)

    def take_over(self, before: ActorCoding) -> None:
        """Take from an earlier object of the run the mail that no turn has handled, outcomes excepted."""
        self._coded, self._older = before._coded, before._older
        if self._actor.state.stall == before._actor.state.stall:
            self.stall = before.stall
        for incoming in before._incoming:
            kept = type(incoming.event) not in OUTCOMES and type(incoming.event) is not ev.RunStalled
            if kept or incoming.reply is not None:
                incoming.coding = self
                self._incoming.append(incoming)
            else:
                incoming.coding = None
        before._incoming = deque()
        self.admit()

    def let_go(self) -> list[Any]:
        """Drop everything; returns who waits for the mail that had not come in."""
        waiting: list[Any] = [reply for _event, reply in self.drop_callers()]
        for incoming in self._incoming:
            incoming.coding = None
        self._incoming.clear()
        self._coded.clear()
        self.let_follow()
        return waiting

    def drop_callers(self) -> list[tuple[Mail, Reply]]:
        """Drop the mail on its way here that somebody waits for, and return it."""
        self.abandon()
        waiting: list[tuple[Mail, Reply]] = [
            (incoming.event, incoming.reply) for incoming in self._incoming if incoming.reply is not None
        ]
        for incoming in self._incoming:
            if incoming.reply is not None:
                incoming.coding = None
        self._incoming = deque(incoming for incoming in self._incoming if incoming.reply is None)
        self.admit()
        return waiting

    # --- turns

    def is_paused(self) -> bool:
        """Take up what has come back (called in the pump); returns whether the run must go on waiting."""
        while self._job is not None:
            job = self._job
            if job.result is None:
                return True
            self._job = None
            try:
                job.finish(job.result)
            except NotReadableError:  # the turn begins again once what the next run is to have can be read
                if job.mail is not None:
                    self._actor.mailbox.appendleft(job.mail)
                raise
            except Exception as error:
                if job.mail is not None and job.mail[1] is not None:
                    settle(job.mail[1], Raise(error))
                raise
        return False

    def abandon(self) -> None:
        """Undo a turn whose record is on its way through the codecs: it never was, and its mail is handled again."""
        self._history = None
        job, self._job = self._job, None
        if job is not None:
            self._actor.drop_instance()
            if job.mail is not None:
                self._actor.mailbox.appendleft(job.mail)

    def _start(
        self,
        way: Any,
        events: Sequence[Any],
        finish: Callable[[Result], None],
        mail: tuple[Mail, Reply] | None = None,
        about: About | None = None,
    ) -> None:
        """Pause until the codecs have answered; when they do at once, nothing is paused."""
        assert self._job is None
        job = Job(finish, mail, is_writing=way == "encode")
        self._coder.start(way, events, partial(self._answered, job), about or self._actor.about)
        if job.result is None:
            self._job = job
        else:
            finish(job.result)

    def _answered(self, job: Job, result: Result) -> None:
        job.result = result
        if self._job is job:
            self._call_pump()

    def _call_pump(self) -> None:
        if not self._actor.queued:
            self._actor.shard.enqueue(self._actor)

    def write(self, record: ev.Record, at: int, reply: Reply) -> None:
        """Encode what a turn has decided, then append its record."""
        outputs = record.outputs if isinstance(record, ev.Turn) else ()
        mail = (record.inputs[0], reply) if record.inputs else None
        about = partial(self._actor.about, inputs=record.inputs)
        self._start("encode", outputs, partial(self._write, record, at, reply), mail, about)

    def _write(self, record: ev.Record, at: int, reply: Reply, outputs: Result) -> None:
        actor = self._actor
        self._history = None
        event = record.inputs[0] if record.inputs else None
        if isinstance(outputs, PayloadCodecError):
            crash_over(actor, WorkflowCrashedError("held", outputs), event, reply)
            return
        coded = self._record(record, outputs)
        try:
            body = encoded(actor, coded)
        except WorkflowCrashedError as crash:
            crash_over(actor, crash, event, reply)
            return
        append(actor, record, coded, at, reply, body=body)
        for given in record.inputs:
            self._coded.pop(id(given), None)
        self.let_follow()
        actor.shard.courier.take_kept(actor.workflow_id)

    def _record(self, record: ev.Record, outputs: list[Any]) -> ev.Record:
        inputs = []
        for event in record.inputs:
            known = self._coded.get(id(event))
            if known is None and type(event) in ENCODED:
                raise RuntimeError(f"{type(event).__name__} has not been through the payload codecs")
            inputs.append(event if known is None else known[1])
        return ev.with_events(record, inputs, outputs)

    def write_stall(self, event: ev.RunStalled, mail: tuple[Mail, Reply] | None) -> None:
        """Encode why the run stands still, then append that."""
        self._start("encode", [event], partial(self._write_stall, event, mail), mail)

    def _write_stall(self, event: ev.RunStalled, mail: tuple[Mail, Reply] | None, result: Result) -> None:
        if isinstance(result, PayloadCodecError):  # nothing of it may be written as it is
            failure = event.failure
            log.error(
                "workflow %r: why it is %s cannot be encoded (%s): %s",
                self._actor.workflow_id,
                event.kind,
                result,
                failure.message,
            )
            message = "the payload codecs could not encode the reason either; the log of that time has it"
            event = ev.RunStalled(event.kind, Failure(failure.type, failure.bases, message, kind="crash"))
            result = [event]
        append_stall(self._actor, event, result[0], mail)

    # --- reading

    def history(self) -> list[tuple[int, ev.Record]]:
        """All records of the run, decoded.

        Raises:
            PausedError: They are on their way.
            WorkflowCrashedError: They cannot be decoded; the run is to be held.
            Exception: The journal could not be read.
        """
        actor = self._actor
        # It stays until the turn is over, which may have to begin again (R1 b).
        known = self._history
        # What was journalled since it was read was only received: a turn takes the history away.
        if known is None:
            records = actor.shard.records(actor)
            events = [event for _at, record in records for event in ev.events_of(record)]
            self._start("decode", events, partial(self._read, records))
            known = self._history
            if known is None:
                raise PausedError
        if isinstance(known, PayloadCodecError):
            self._history = None
            raise WorkflowCrashedError("held", known)
        return known

    def _read(self, records: list[tuple[int, ev.Record]], result: Result) -> None:
        self._history = result if isinstance(result, PayloadCodecError) else with_events(records, result)

    def unread(self) -> dict[int, Any]:
        """The received inputs that no turn has delivered, decoded.

        Raises:
            PausedError: They are on their way.
            WorkflowCrashedError: They cannot be decoded; the run is to be held.
        """
        stored = self._actor.state.unread
        missing = [number for number in stored if number not in self._unread]
        if missing:
            self._start("decode", [stored[number] for number in missing], partial(self._read_unread, missing))
            if any(number not in self._unread for number in missing):
                raise PausedError
        if len(self._unread) > 2 * len(stored):
            self._unread = {number: self._unread[number] for number in stored}
        for number in stored:
            if isinstance(self._unread[number], PayloadCodecError):
                error = self._unread[number]
                self._unread = {}
                raise WorkflowCrashedError("held", error)
        return self._unread

    def _read_unread(self, numbers: list[int], result: Result) -> None:
        if isinstance(result, PayloadCodecError):
            self._unread.update(dict.fromkeys(numbers, result))
        else:
            self._unread.update(zip(numbers, result, strict=True))

    def plain_stall(self, then: Callable[[ev.RunStalled], None]) -> None:
        """Call ``then`` with the present stall, decoded; one that cannot be decoded says why."""
        stall = self._actor.state.stall
        assert stall is not None

        def done(result: Result) -> None:
            if isinstance(result, PayloadCodecError):
                failure = msgspec.structs.replace(
                    stall.failure, message=f"(not readable: {result})", coded=None
                )
            else:
                failure = result[0].failure
            if self._actor.state.stall is stall:
                self.stall = failure
            then(ev.RunStalled(stall.kind, failure))

        if self.stall is not None:
            then(ev.RunStalled(stall.kind, self.stall))
        else:
            self._coder.start("decode", [stall], done, self._actor.about)


def with_events(records: list[tuple[int, ev.Record]], events: Sequence[Any]) -> list[tuple[int, ev.Record]]:
    """Records with other events in them, one for each, in order."""
    made: list[tuple[int, ev.Record]] = []
    start = 0
    for at, record in records:
        middle = start + len(record.inputs)
        end = start + len(ev.events_of(record))
        made.append((at, ev.with_events(record, events[start:middle], events[middle:end])))
        start = end
    return made
