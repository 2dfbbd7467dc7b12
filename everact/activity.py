"""What authors of activities write: ``from everact import activity``."""

from .actors.activity import (
    ActivityInfo,
    client,
    defn,
    heartbeat,
    heartbeat_details,
    in_activity,
    info,
    is_cancelled,
    is_shutting_down,
    logger,
    raise_complete_async,
    shield_thread_cancel_exception,
    wait_for_cancelled,
    wait_for_cancelled_sync,
    wait_for_shutdown,
    wait_for_shutdown_sync,
)

__all__ = [
    "ActivityInfo",
    "client",
    "defn",
    "heartbeat",
    "heartbeat_details",
    "in_activity",
    "info",
    "is_cancelled",
    "is_shutting_down",
    "logger",
    "raise_complete_async",
    "shield_thread_cancel_exception",
    "wait_for_cancelled",
    "wait_for_cancelled_sync",
    "wait_for_shutdown",
    "wait_for_shutdown_sync",
]
