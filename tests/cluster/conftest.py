"""No test of this room may leave an error behind that only a log has seen."""

from support.hidden_errors import no_hidden_errors

__all__ = ["no_hidden_errors"]
