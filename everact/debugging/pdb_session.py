"""A pdb that stays in the user's code of a run, and knows the run."""

from __future__ import annotations

import pdb  # noqa: T100  (it is what this is)
import sys
from bdb import BdbQuit
from collections.abc import Callable, Iterable
from types import FrameType
from typing import IO, Any

from ..actors.event_loop import TurnAborted
from .run_state import RunState, lines_of
from .tracing import UserCode, is_turn, returns

HELP = """ev                what the run is stopped at
ev tasks          the run's tasks with their stacks and locals, what is in flight, the workflow object
ev history [N]    the run's events, or one of them whole
All commands of pdb work too: w (where), p, pp, n, s, c, b, q. `c` goes on to the end of the history."""


class LeftError(TurnAborted):
    """The user has left: no code of the run may handle that."""


class RunPdb(pdb.Pdb):
    """Pdb for the code of one run.

    Attributes:
        has_left: The user has left.
    """

    def __init__(
        self,
        user: UserCode,
        about: Iterable[str],
        state: Callable[[FrameType | None], RunState],
        history: Callable[[int | None], Iterable[str]],
        *,
        stdin: IO[str] | None = None,
        stdout: IO[str] | None = None,
    ) -> None:
        """Nothing is stopped yet.

        Args:
            user: Where stepping stops.
            about: What is said of the event.
            state: Looks at the run.
            history: Lines about its events, or one of them.
            stdin: Where commands come from.
            stdout: Where answers go.
        """
        super().__init__(stdin=stdin, stdout=stdout)
        self.prompt = "(everact) "
        self.has_left = False
        self._goes_on = False
        self._user = user
        self._about = list(about)
        self._state = state
        self._history = history

    def begin(self, frame: FrameType, kind: str, arg: Any) -> Any:
        """Stop at this moment of a traced frame, and trace from here on."""
        for line in self._about:
            self.message(line)
        self.reset()
        outer: FrameType = frame
        back: FrameType | None = frame
        while back is not None and not is_turn(back):
            if back in self._user:
                back.f_trace = self.trace_dispatch
                outer = back
            back = back.f_back
        self.botframe = outer  # the frames around it are of no interest
        self.set_step()
        sys.settrace(self.trace_dispatch)
        return self.trace_dispatch(frame, kind, arg)

    def stop_here(self, frame: FrameType) -> bool:
        """Whether stepping stops in a frame."""
        return frame in self._user and super().stop_here(frame) and not self._user.is_condition(frame)

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        """What Python calls."""
        try:
            return super().trace_dispatch(frame, event, arg)
        except BdbQuit:
            self.has_left = True
            raise LeftError from None

    def interaction(self, *args: Any, **kwargs: Any) -> None:
        """Let the user say how to go on."""
        self._goes_on = False
        super().interaction(*args, **kwargs)

    def set_continue(self) -> None:
        """Go on to the next breakpoint."""
        self._goes_on = True
        super().set_continue()

    def dispatch_return(self, frame: FrameType, arg: Any) -> Any:
        """Stop where a coroutine returns that was stepped through, as at the end of a function: bdb would run on."""
        if frame is self.stopframe and not self._goes_on and returns(frame):
            self.set_step()
        return super().dispatch_return(frame, arg)

    def do_run(self, arg: str) -> None:
        """Not here."""
        del arg
        self.error("the history cannot begin again here: leave with q and start the command again")

    do_restart = do_run

    def do_ev(self, arg: str) -> None:
        """What the run is stopped at, its tasks, its history."""
        words = arg.split()
        match words:
            case []:
                lines: Iterable[str] = [*self._about, HELP]
            case ["tasks"]:
                lines = lines_of(self._state(self.stack[-1][0]))
            case ["history"]:
                lines = self._history(None)
            case ["history", number] if number.isdecimal():
                lines = self._history(int(number))
            case _:
                lines = [HELP]
        for line in lines:
            self.message(line)

    def help_ev(self) -> None:
        """For ``help ev``."""
        self.message(HELP)
