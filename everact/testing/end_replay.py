"""The replay at the end of a test environment: what its runs have decided, their code decides again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ..actors.addresses import Address
from .replayer import Replayer

if TYPE_CHECKING:
    from ..actors.descriptions import History
    from ..actors.runtime import Runtime

#: So many runs of an environment are replayed, the newest ones.
MOST = 1_000


async def replay_at_end(runtime: Runtime, faked: Collection[str], hash_seeds: Iterable[int]) -> None:
    """Replay the histories of an environment's runs.

    Args:
        runtime: Still open.
        faked: Workflow types that were faked: there is no code to replay.
        hash_seeds: As of ``Replayer``.

    Raises:
        ReplayFailedError: The code of a run does not repeat its history.
        ValueError: There are hash seeds, and something cannot be imported by another process.
    """
    known = runtime._registry.workflows
    histories: list[History] = []
    async for run in runtime.list_workflows():
        if len(histories) == MOST:
            break
        # Of a held or quarantined run it is known why its code cannot go on.
        is_stalled = run.status in {"held", "quarantined"}
        if run.workflow_type in known and run.workflow_type not in faked and not is_stalled:
            address = str(Address(runtime.name, run.workflow_id, run.run_id))
            histories.append(await runtime.ref(address).fetch_history())
    if not histories:
        return
    Replayer.of_runtime(runtime, hash_seeds=hash_seeds).replay_many(histories)
