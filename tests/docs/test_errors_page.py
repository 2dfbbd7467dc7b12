"""docs/errors.md knows every public error, and no other."""

import builtins
import re
from pathlib import Path

from everact import exceptions

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


def test_every_public_error_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+(?:Error|Warning))`", PAGE.read_text(encoding="utf-8")))
    assert set(exceptions.__all__) <= named
    assert not {name for name in named - set(exceptions.__all__) if not hasattr(builtins, name)}
