"""No test of this room may leave an error behind that only a log has seen; all run while the log is moved."""

from support.hidden_errors import no_hidden_errors
from support.segments import keeps_code, tiny_segments

__all__ = ["keeps_code", "no_hidden_errors", "tiny_segments"]
