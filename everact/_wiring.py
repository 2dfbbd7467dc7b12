"""What the front door puts in place for lower rooms, which never import higher ones; it imports none itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: By what is built: ``door``, see ``actors.doors``.
builders: dict[str, Callable[..., Any]] = {}
