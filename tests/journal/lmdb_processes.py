"""Processes that use a journal and are killed, for the tests of the LMDB store."""

import os
import subprocess
import sys
import textwrap

PRELUDE = """
import os, signal, sys
from everact.journal.errors import *
from everact.journal.lmdb_store import LmdbStore
from everact.journal.store import Entry, Location, Position

path = sys.argv[1]

def say(text):
    print(text, flush=True)

def entry(number):
    return Entry(number, number, 0, number, b"turn %d" % number)
"""


class Script:
    """A Python process running ``source``; ``with`` makes sure that it is over in the end.

    ``within`` is a command that ends by running the rest of its line.
    """

    def __init__(self, source, path, *, within=(), **environment):
        self.process = subprocess.Popen(
            [*within, sys.executable, "-c", PRELUDE + textwrap.dedent(source), os.fspath(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore::DeprecationWarning", **environment},
        )
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.process.kill()
        self.process.communicate()

    def line(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return line.strip()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def finish(self):
        """Let it end; returns what it printed."""
        out, err = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, (self.process.returncode, out, err)
        assert err == ""
        return out.splitlines()


def run(source, path, **environment):
    with Script(source, path, **environment) as script:
        return script.finish()
