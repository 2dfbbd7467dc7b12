"""``everact journal messages``: what runs have sent each other and none has received yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .journal_commands import AsJson, Journal, _count, _print_json, _reading, _say, _writing, message_data
from .upkeep_commands import app

if TYPE_CHECKING:
    from .journal.lmdb_store import LmdbStore

__all__ = ["app", "messages"]


@app.command()
def messages(
    journal: Journal,
    discard: Annotated[
        list[int] | None,
        typer.Option(
            "--discard",
            metavar="NUMBER",
            help="Take a message out that was put aside and cannot be read; may be given several times.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the messages between runs that are on their way, and those that were put aside.

    The latter are tried again at each start: those for a damaged run arrive once it is mended.
    """
    from .journal.messages_under_way import messages_under_way  # noqa: PLC0415

    if discard:
        with _writing(journal, "leave the message there (it holds up no others)") as store:
            _discard(store, discard)
        if as_json:
            _print_json({"discarded": len(set(discard))})
        else:
            _say(f"discarded {_count(len(set(discard)), 'message')}")
        return
    with _reading(journal) as store:
        found = messages_under_way(store)
        if as_json:
            _print_json([message_data(message) for message in found])
            return
        none = True
        for message in found:
            none = False
            _say(str(message))
        if none:
            _say("no messages between runs are on their way")


def _discard(store: LmdbStore, numbers: list[int]) -> None:
    """Take messages out; all of them, or nothing.

    Raises:
        JournalError: One was not put aside, or can be read.
    """
    from functools import partial  # noqa: PLC0415

    from .journal.errors import JournalError  # noqa: PLC0415
    from .journal.messages_under_way import messages_under_way  # noqa: PLC0415
    from .journal.outbox import discard_aside  # noqa: PLC0415

    aside = {message.sequence: message for message in messages_under_way(store) if message.is_aside}
    for number in numbers:
        message = aside.get(number)
        if message is None:
            raise JournalError(
                f"no message {number} was put aside (`everact journal messages` lists them), and nothing was discarded"
            )
        if message.body is not None:
            raise JournalError(
                f"message {number} can be read, and nothing was discarded: it is received at a start, once workflow "
                f"{message.receiver[0]!r} can be read"
            )
    which = [(aside[number].source, number) for number in set(numbers)]
    store.append(store.position, [], partial(discard_aside, which=which))
