"""Hundreds of lives that end by SIGKILL at random: ``make soak``, or ``python -m support.sigkill_rounds --kills 1000``.

The program of the crash tests goes through journals, one after the other. Each life is killed after a random number of
lines or at a random pass of a random fault point; after each, every promise is checked (``support.crashes``). When all
workflows of a journal have ended, it is compared with one that was never interrupted, and the next one begins.
Lives are forked from this process, which has everything imported and no journal open: they cost a tenth of a second.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from everact.journal.fault_points import FAULT_POINTS, arm_from_environment
from support.crashes import Story

PROGRAM = Path(__file__).parents[1] / "crash" / "workload.py"
POINTS = [point for point in FAULT_POINTS if point not in ("journal.open.created", "journal.open.migrated")]


class Fork:
    """A child of this process, with as much of ``subprocess.Popen`` as a story needs."""

    def __init__(self, run):
        ours, theirs = [], []
        for ends in (os.pipe(), os.pipe(), os.pipe()):
            here, there = ends if ours else ends[::-1]  # we write the first one and read the others
            ours.append(here)
            theirs.append(there)
        self.returncode = None
        self.pid = os.fork()
        if not self.pid:
            for place, end in enumerate(theirs):
                os.dup2(end, place)
            os.closerange(3, max(ours + theirs) + 1)
            code = 1
            try:
                run()
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        for end in theirs:
            os.close(end)
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(end, mode) for end, mode in zip(ours, ("wb", "rb", "rb"), strict=True)
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.kill()
        self.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()

    def kill(self):
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)

    def communicate(self, timeout=None):
        hangs = threading.Event()

        def end():
            hangs.set()
            self.kill()

        timer = threading.Timer(timeout, end) if timeout else None
        if timer is not None:
            timer.start()
        try:
            errors = []
            reader = threading.Thread(target=lambda: errors.append(self.stderr.read()))
            reader.start()
            out = self.stdout.read()
            reader.join()
            self.wait()
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
        if hangs.is_set():
            raise subprocess.TimeoutExpired("life", timeout, out, errors[0])
        return out, errors[0]


class ForkedStory(Story):
    """A story whose lives are forks."""

    def start(self, fault):
        def run():
            arm_from_environment(fault)
            with os.fdopen(0) as stdin:
                acknowledged = json.loads(stdin.readline())
            with self.workload.small():
                asyncio.run(self.workload.main(os.fspath(self.journal), acknowledged))

        return Fork(run)


def live_once(story, rng):
    """One life with an end at random; nothing when the workload came to its end before it."""
    if rng.random() < 0.4:
        story.live(kill_after=rng.randint(1, 60))
    else:
        # Most lives end early: start-up is where they differ.
        story.live(f"{rng.choice(POINTS)}:{rng.choice([1, 1, 2, 3, rng.randint(4, 40)])}")


def rounds(kills, seed, directory, told=print):
    """Go on until so many lives were killed; raises ``AssertionError`` when a promise was broken."""
    began = time.monotonic()
    rng = random.Random(seed)
    uninterrupted = ForkedStory(PROGRAM, directory / "uninterrupted")
    assert not uninterrupted.live()
    done = number = 0
    while done < kills:
        number += 1
        story = ForkedStory(PROGRAM, directory / f"journal-{number}")
        while not story.is_done and done + story.kills < kills:
            live_once(story, rng)
        story.finish()
        story.check_end()
        story.compare(uninterrupted)
        done += story.kills
        told(f"{done} kills in {number} journals, {time.monotonic() - began:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument(
        "--seed", type=int, default=None, help="a number; printed, and another each time by default"
    )
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="everact-soak-") as directory:
        rounds(options.kills, seed, Path(directory), lambda text: print(text, flush=True))


if __name__ == "__main__":
    main()
