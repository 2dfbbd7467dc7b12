"""README.md here says where each case is tried, or what it waits for; both are true."""

import re
from pathlib import Path

HERE = Path(__file__).parent
ROW = re.compile(r"^\| ([A-L]\d\d) \| (.+?) \|$", re.MULTILINE)


def rows() -> dict[str, str]:
    found = ROW.findall((HERE / "README.md").read_text(encoding="utf-8"))
    assert len(found) == len(dict(found)) == 72
    return dict(found)


def tried() -> dict[str, set[str]]:
    """The files that have a test of each number."""
    found: dict[str, set[str]] = {}
    for path in HERE.glob("test_*.py"):
        for names in re.findall(
            r"^(?:async )?def test_((?:[a-l]\d\d_)+)", path.read_text("utf-8"), re.MULTILINE
        ):
            for number in names.strip("_").split("_"):
                found.setdefault(number.upper(), set()).add(path.name)
    return found


def test_each_case_is_tried_where_the_table_says_so_or_is_left_for_something_that_is_named() -> None:
    tests = tried()
    for number, where in rows().items():
        if number in tests:
            assert {f"`{name}`" for name in tests[number]} == set(where.split(", ")), number
        else:
            assert where.startswith("left for "), number
    assert tests.keys() <= rows().keys()
