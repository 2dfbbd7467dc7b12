"""A journal that an old Everact has written, kept in ``tests/journal/data`` to be opened for ever.

``python -m support.old_format DIRECTORY`` (from ``tests``, with the old version installed) writes a journal and leaves
it as a kill would: runs in the middle of everything. ``pack`` makes the committed archive of its data file. Format 1
is that of commit b6f773e.
"""

import asyncio
import os
import sys
import tarfile
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import zstandard

from everact import ActivityError, ApplicationError, RetryPolicy, Runtime, activity, workflow
from everact.exceptions import WorkflowFailedError

DATA = Path(__file__).parents[1] / "journal" / "data"
FORMAT_1 = DATA / "format-1.tar.zst"


@activity.defn
async def double(n: int) -> int:
    return 2 * n


LATER = RetryPolicy(
    initial_interval=timedelta(hours=1), maximum_interval=timedelta(hours=1), jitter=0.0, maximum_attempts=3
)


@activity.defn(retry_policy=LATER)
async def unlucky(n: int) -> int:
    if activity.info().attempt == 1:
        raise ApplicationError("no luck yet")
    return n


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
async def broken() -> None:
    raise ApplicationError("broken")


@workflow.defn
class Adds:
    """Waits for messages until it is told to end."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.over = False

    @workflow.run
    async def run(self, first: int) -> list[int]:
        self.numbers.append(await double(first))
        await workflow.wait_condition(lambda: self.over)
        return self.numbers

    @workflow.signal
    def add(self, n: int) -> None:
        self.numbers.append(n)

    @workflow.update
    async def add_double(self, n: int) -> int:
        doubled = await double(n)
        self.numbers.append(doubled)
        return doubled

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.query
    def look(self) -> list[int]:
        return self.numbers


@workflow.defn
class Sleeps:
    """Waits for a timer far away."""

    @workflow.run
    async def run(self, hours: int) -> str:
        await workflow.sleep(timedelta(hours=hours))
        return f"slept {hours} hours"


@workflow.defn
class Retries:
    """Waits for the second attempt of an activity."""

    @workflow.run
    async def run(self, n: int) -> int:
        return await unlucky(n)


@workflow.defn
class Breaks:
    """Fails."""

    @workflow.run
    async def run(self) -> None:
        try:
            await broken()
        except ActivityError:
            raise ApplicationError("gave it back") from None


@workflow.defn
class Renamed:
    """A type that the new program does not know any more."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


WORKFLOWS = [Adds, Sleeps, Retries, Breaks]
ACTIVITIES = [double, unlucky, broken]


async def write(path):
    """Write the journal; does not come back."""
    runtime = Runtime(path, workflows=[*WORKFLOWS, Renamed], activities=ACTIVITIES)
    await runtime.__aenter__()
    for number in range(12):
        ref = await runtime.spawn(Adds, number, id=f"adds-{number}", request_id=f"start-{number}")
        for step in range(number):
            await ref.tell("add", step, request_id=f"add-{number}-{step}")
        assert await ref.ask("add_double", number, request_id=f"double-{number}") == 2 * number
        if number % 3 == 0:
            await ref.tell("end")
            await ref.result()
    for hours in (1, 2):
        await runtime.spawn(Sleeps, hours, id=f"sleeps-{hours}")
    await runtime.spawn(Retries, 7, id="retries")
    for number in range(3):
        ref = await runtime.spawn(Breaks, id="breaks", request_id=f"breaks-{number}")
        try:
            await ref.result()
        except WorkflowFailedError:
            pass
    await runtime.spawn(Renamed, id="renamed")
    ref = await runtime.spawn(Adds, 99, id="terminated")
    await ref.terminate("no longer wanted")
    while not any(e.kind == "AttemptFailed" for e in (await runtime.ref("retries").fetch_history()).events):
        await asyncio.sleep(0.01)
    os._exit(0)


def pack(path, archive):
    """Put the data file of a journal that nobody has open into an archive."""
    data = Path(path, "data.mdb").read_bytes()
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("data.mdb")
        member.size = len(data)
        tar.addfile(member, BytesIO(data))
    archive.write_bytes(zstandard.ZstdCompressor(level=19).compress(packed.getvalue()))


def unpack(archive, path):
    """Make the journal of an archive at a path; returns the path."""
    plain = zstandard.ZstdDecompressor().decompress(archive.read_bytes(), max_output_size=64 << 20)
    with tarfile.open(fileobj=BytesIO(plain)) as tar:
        tar.extractall(path, filter="data")
    return path


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
