"""For the conftest of a room none of whose tests may leave an error behind that only a log has seen."""

import pytest


@pytest.fixture(autouse=True)
def no_hidden_errors(caplog, request):
    """Fail when an effect raised, a task's error was lost, or a turn broke inside Everact."""
    yield
    if request.path.name == "test_internal_errors.py":  # they make such errors
        return
    hidden = [
        record.getMessage()
        for record in caplog.get_records("call")
        if (record.name == "asyncio" and record.levelname == "ERROR")
        or "internal error" in record.getMessage()
    ]
    assert not hidden
