"""README's hello.py survives a real SIGKILL, and prints what README says."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
PROGRAM = re.compile(r"Save this as `hello\.py`:\n.*?```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"```console\n\$ [^\n]*hello\.py[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def without_numbers(text: str) -> str:
    return re.sub(r"process \d+", "process N", text)


@pytest.mark.slow
def test_the_first_program_of_the_readme_survives_a_kill(tmp_path: Path) -> None:
    readme = README.read_text(encoding="utf-8")
    code, promised = PROGRAM.search(readme)[1], OUTPUT.findall(readme)
    assert code.count("workflow.sleep(5)") == 1
    program = tmp_path / "hello.py"
    program.write_text(code.replace("workflow.sleep(5)", "workflow.sleep(1)"))

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, program.name],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    with start() as process:
        seen = ""
        for line in process.stdout:
            seen += line
            if line == "sleeping\n":
                process.kill()
    assert process.returncode == -signal.SIGKILL
    outputs = [seen]
    for _ in range(2):
        with start() as process:
            outputs.append(process.stdout.read())
        assert process.returncode == 0
    assert len(promised) == 3
    assert [without_numbers(text) for text in outputs] == [without_numbers(text) for text in promised]
