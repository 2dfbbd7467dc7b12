"""What a replay of stored histories raises when code does not fit them."""

from __future__ import annotations

from typing import Any

from ..journal.errors import EveractError


class ReplayFailedError(EveractError, AssertionError):
    """Code does not repeat a history; raised by ``everact.testing.Replayer``, with all that differs in its text.

    Attributes:
        report: The ``ReplayReport``; None on an error that was made elsewhere.
    """

    report: Any = None
