"""The logger of workflow code: each record once, after its turn is durable."""

from __future__ import annotations

import logging
from contextlib import suppress

from .context import running_instance


class WorkflowLogger(logging.Logger):
    """Holds records back until their turn is durable, and drops those of a replay.

    Records carry ``workflow_id``, ``run_id`` and ``workflow_type``.
    """

    def handle(self, record: logging.LogRecord) -> None:
        """Take a record from workflow code, or from anywhere else."""
        instance = running_instance()
        if instance is None:
            super().handle(record)
            return
        if instance.replaying:
            return
        # Format now: the arguments may change before the record leaves. Arguments that do not fit are for the
        # handlers to report: logging never raises where it is called.
        with suppress(Exception):
            record.msg, record.args = record.getMessage(), None
        started = instance.started
        if started is not None:
            record.workflow_id = started.workflow_id
            record.run_id = started.run_id
            record.workflow_type = started.workflow_type
        instance.logs.append(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Let a record go to the handlers, if the logger whose name it bears lets its level pass."""
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logging.Logger.handle(logger, record)


def _make(name: str) -> WorkflowLogger:
    """Make the logger that ``logging.getLogger(name)`` gives too, so that programs can set its level."""
    stock = logging.getLoggerClass()
    logging.setLoggerClass(WorkflowLogger)
    try:
        found = logging.getLogger(name)
    finally:
        logging.setLoggerClass(stock)
    if not isinstance(found, WorkflowLogger):  # somebody asked for it before this module was imported
        found.__class__ = WorkflowLogger
    return found  # type: ignore[return-value]


workflow_logger = _make("everact.workflow")
