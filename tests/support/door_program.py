"""The program of ``door_workflows`` in a process of its own, to be killed and started again."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


class Program:
    """Runs on a journal until it is left or killed; ``with`` makes sure that it is over in the end."""

    def __init__(self, path: os.PathLike[str] | str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "door_workflows.py"), os.fspath(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None

    def ready(self) -> "Program":
        """Wait until its runtime is entered."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        self.process.communicate("\n", timeout=30)
        assert self.process.returncode == 0

    def __enter__(self) -> "Program":
        return self.ready()

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.communicate()
