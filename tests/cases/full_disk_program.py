"""A runtime on a small disk that somebody else fills up, and empties; run by test_journal.py where that is mounted."""

import asyncio
import os
import sys
from pathlib import Path

from everact import Runtime, workflow
from everact.actors import intake, rebuilding
from everact.exceptions import CommitUnknownError, JournalFullError

rebuilding.FIRST_PAUSE = intake.CHECK_EVERY = 0.002
rebuilding.LONGEST_PAUSE = 0.01
DISK = Path(sys.argv[1])


@workflow.defn
class Keeps:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.wait_for_signal("end")
        return self.sizes

    @workflow.signal
    def add(self, ballast: bytes) -> None:
        self.sizes.append(len(ballast))


async def fill(handle):
    """Signals until none is taken any more; how many were acknowledged."""
    taken = 0
    while True:
        try:
            await handle.signal(Keeps.add, os.urandom(20_000))
        except (JournalFullError, CommitUnknownError) as error:
            assert "space" in str(error).lower() or "full" in str(error).lower(), error
            return taken
        taken += 1


async def main():
    ballast = DISK / "ballast"
    ballast.write_bytes(bytes(4 << 20))
    async with Runtime(DISK / "journal", workflows=[Keeps], grace=0, door=False) as runtime:
        handle = await runtime.spawn(Keeps, id="keeps")
        taken = await fill(handle)
        assert taken > 10, taken
        ballast.unlink()
        async with asyncio.timeout(20):
            while True:  # it finds out by itself
                try:
                    await handle.signal(Keeps.add, b"more")
                    break
                except (JournalFullError, CommitUnknownError):
                    await asyncio.sleep(0.001)
        await handle.signal("end")
        sizes = await handle.result()
    assert sizes.count(20_000) >= taken and sizes[-1] == 4, (len(sizes), taken)
    async with Runtime(DISK / "journal", workflows=[Keeps], grace=0, door=False) as runtime:
        assert await runtime.ref("keeps", Keeps).result() == sizes
    print("ok")


asyncio.run(main())
