"""A stack with real speech, shared by the tests that only use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.stack import Stack


@pytest.fixture(scope="session")
def hibari_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack as ``make up`` starts it, on a home of its own."""
    stack = Stack(tmp_path_factory.mktemp("hibari") / "home", "--engine", "hibari")
    stack.start()
    yield stack
    assert stack.stop() == 0
