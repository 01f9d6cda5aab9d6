"""Fixtures that several tests of the worker share."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.cosyvoice_world import World, forget


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A CosyVoice 3 model and the voice ``ann``, who speaks English; not loaded yet."""
    path, root = [*sys.path], logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    forget()
    world = World(tmp_path)
    world.make_model()
    world.make_voice("ann", language="en")
    yield world
    forget()
    sys.path[:] = path
    root.setLevel(level)
    root.handlers[:] = handlers
