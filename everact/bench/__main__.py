"""``python -m everact.bench``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .driver import main


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="everact bench", description=main.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the counts")
    parser.add_argument("--only", metavar="W1,J2", help="only these; 'journal' is all of J")
    parser.add_argument("--json", dest="json_file", metavar="FILE", help="write all figures there")
    parser.add_argument("--journal", metavar="DIR", help="measure the disk that holds this directory")
    parser.add_argument("--uvloop", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="the median of N runs of each workload"
    )
    parser.add_argument("--profile", metavar="FILE", help="profile the loop's thread in W2 and W3")
    parser.add_argument("--peers", action="store_true", help="DBOS beside ours, if it is installed")
    parser.add_argument("--record", metavar="FILE", help="write the ratios there, for --check")
    parser.add_argument("--check", metavar="FILE", help="fail when a ratio is below 0.8 of the recorded one")
    parser.add_argument("--keep", action="store_true", help="keep the journals")
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Measure as the arguments say; returns the exit code."""
    parser = _parser()
    try:
        return main(**vars(parser.parse_args(argv)))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(run())
