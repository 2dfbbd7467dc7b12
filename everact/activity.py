"""What authors of activities write: ``from everact import activity``."""

from .actors.activity import ActivityInfo, client, defn, in_activity, info, logger

__all__ = ["ActivityInfo", "client", "defn", "in_activity", "info", "logger"]
