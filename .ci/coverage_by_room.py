"""Print how much of each room the tests ran, and fail when one of the named rooms is below the bar.

Usage: coverage_by_room.py COVERAGE.json MINIMUM_PERCENT ROOM...
"""

import json
import sys
from collections import Counter
from pathlib import Path, PurePath


def main(report: str, minimum: str, *judged: str) -> int:
    """Return the exit code: 1 when a judged room has statements and fewer than ``minimum`` % of them ran."""
    lines: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    missing: dict[str, list[str]] = {}
    for path, found in json.loads(Path(report).read_text(encoding="utf-8"))["files"].items():
        room = PurePath(path).parts[0]
        summary = found["summary"]
        lines[room] += summary["num_statements"]
        ran[room] += summary["covered_lines"]
        if summary["missing_lines"]:
            missing.setdefault(room, []).append(f"{path} {summary['missing_lines']}")
    low = []
    for room in sorted(lines.keys() | set(judged)):
        share = 100 * ran[room] / lines[room] if lines[room] else 100.0
        too_low = room in judged and share < float(minimum)
        bar = f" (at least {minimum})" if room in judged else ""
        print(f"{room:12} {share:6.1f} % of {lines[room]:5} lines{bar}{'  TOO LOW' if too_low else ''}")
        if too_low:
            low.append(room)
    for room in low:
        print(f"lines not run in {room}: {', '.join(missing[room])}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
