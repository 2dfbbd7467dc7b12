"""A program that leaves its runtime on SIGTERM, as docs/supervision.md has it; its export is tried once only.

``python leaving_program.py JOURNAL GRACE``: each line on its output is a JSON text.
"""

import asyncio
import contextlib
import json
import signal
import sys

from everact import RetryPolicy, Runtime, activity, workflow


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
async def export() -> list[object]:
    begun_at = activity.heartbeat_details(int) or 0
    if begun_at:
        return ["went on", begun_at, activity.info().attempt]
    say("begun")
    try:
        await activity.wait_for_shutdown()
        if GRACE:
            return ["finished", 0, activity.info().attempt]
        await asyncio.Event().wait()
    finally:
        activity.heartbeat(7)
    raise AssertionError


@workflow.defn
class Exports:
    @workflow.run
    async def run(self) -> list[object]:
        return await export()


async def main() -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with Runtime(sys.argv[1], workflows=[Exports], activities=[export], grace=GRACE) as runtime:
            handle = await runtime.spawn(Exports, id="e", if_running="attach", if_closed="attach")
            say(await handle.result())


GRACE = float(sys.argv[2])
asyncio.run(main())
