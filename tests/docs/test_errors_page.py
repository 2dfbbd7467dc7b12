"""docs/errors.md knows every public error, and no other."""

import builtins
import re
from pathlib import Path

from everact import exceptions, testing

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


def test_every_public_error_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+(?:Error|Warning))`", PAGE.read_text(encoding="utf-8")))
    public = set(exceptions.__all__) | {name for name in testing.__all__ if name.endswith("Error")}
    assert public <= named
    assert not {name for name in named - public if not hasattr(builtins, name)}
