"""The sessions of debugging.md and lint.md are what the commands print, but for times, ids and addresses."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LATE = (
    "import time\n\nfrom everact import workflow\n\n@workflow.defn\nclass Late:\n    @workflow.run\n"
    "    async def run(self) -> float: return time.time()\n"
)


def blocks(page, language):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [code for name, code in BLOCK.findall(text) if name == language]


def sessions(page):
    """Commands with what is typed into them, and what they print."""
    for block in blocks(page, "text"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, out = part.partition("\n")
            typed = re.findall(r"^\(everact\) (.*)\n", out, re.MULTILINE)
            yield (
                command,
                "".join(f"{line}\n" for line in typed),
                re.sub(r"^(\(everact\) ).*\n", r"\1", out, flags=re.MULTILINE),
            )


def plain(text, folder):
    """Without what differs from run to run, and the blanks that put a table in order."""
    text = text.replace(f"{folder}/", "")
    text = re.sub(r"\b[0-9a-f]{32}\b", "ID", text)
    text = re.sub(r"0x[0-9a-f]+", "ADDRESS", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", "TIME", text)
    text = re.sub(r" *\+?[\d.]+ m?s\b", " SPAN", text)
    text = re.sub(r" *[━◆]+ *", " BAR ", text)
    return "\n".join(re.sub(" +", " ", line.rstrip(" ─")) for line in text.splitlines())


def run(*command, folder, typed=""):
    return subprocess.run(
        [sys.executable, *command],
        input=typed,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "PATH": ""},
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", ["debugging.md", "lint.md"])
def test_the_sessions_of_a_page_are_what_the_commands_print(page, tmp_path):
    if page == "debugging.md":
        (program,) = blocks(page, "python")
        (tmp_path / "orders.py").write_text(program)
        assert run("orders.py", folder=tmp_path).stdout == "receipt-5, approved by ada\n"
    else:
        (tmp_path / "flows").mkdir()
        (tmp_path / "flows" / "orders.py").write_text(
            LATE.replace(": return", ":\n        return").replace("time\n\n", "time\n", 1)
        )
    seen = 0
    for command, typed, out in sessions(page):
        words = shlex.split(command)
        assert words[0] == "everact"
        done = run("-m", *words, folder=tmp_path, typed=typed)
        assert done.returncode == (page == "lint.md"), done.stderr
        assert plain(done.stdout + done.stderr, tmp_path) == plain(out, tmp_path), command
        seen += 1
    assert seen == (4 if page == "debugging.md" else 1)
