"""What lives once in a process: the child with its engine, or the parent of such children."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from voicemill.errors import OutOfMemoryError, SettingsError, VoicemillError
from voicemill.rollouts import Revision
from voicemill.settings import Settings
from voicemill.workers import child_id, place_of
from worker.environment import keep_to_cores, parent_pid, slot
from worker.exits import EXIT_MISCONFIGURED, EXIT_NO_MEMORY, EXIT_NOT_LOADED, MEANINGS

if TYPE_CHECKING:
    from worker.child import Child
    from worker.parent import Parent

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1

_child: Child | None = None
_parent: Parent | None = None


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; leave if that has happened already.

    Linux only (prctl(2)); elsewhere an orphan notices that its pipe is closed.
    """
    if not sys.platform.startswith("linux"):
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid():
        raise SystemExit(EXIT_NOT_LOADED)


def start_child(node: str) -> None:
    """Load the engine in this process; leave by ``SystemExit`` when that can't be done.

    Celery swallows any other exception here and would hand work to an empty child.
    """
    # What an engine needs is imported by children only: the parent and Flower do without.
    from voicemill.store import Store
    from worker.child import Child
    from worker.patience import patiently
    from worker.revisions import note_revision_failed, settings_of

    global _child
    settings = Settings.from_env()
    keep_to_cores()
    place, revision = place_of(node, slot()), Revision()

    def take_back(why: str) -> bool:
        return note_revision_failed(store, settings.engine, place, why, revision=revision.name)

    try:
        store = Store.connect(settings.redis_url)
        patience = settings.load_timeout_seconds
        revision = patiently(patience, store.assign_revision, settings.engine, place, patience)
        name = child_id(node, os.getppid(), os.getpid())
        _child = Child(settings_of(settings, revision), name, node, place, revision)
    except SettingsError as error:
        logger.critical("engine %s can't be loaded: %s", settings.engine, error.message)
        raise SystemExit(
            EXIT_NOT_LOADED if take_back(error.message) else EXIT_MISCONFIGURED
        ) from error
    except OutOfMemoryError as error:
        advice = MEANINGS[EXIT_NO_MEMORY]
        logger.critical("engine %s: %s %s", settings.engine, error.message, advice)
        take_back(f"{error.code}: {error.message}")
        raise SystemExit(EXIT_NO_MEMORY) from error
    except VoicemillError as error:
        logger.critical("engine %s could not be loaded: %s", settings.engine, error.message)
        take_back(error.message)
        raise SystemExit(EXIT_NOT_LOADED) from error
    # Whatever an engine raises while it loads must end the process, by the exit Celery obeys.
    except Exception as error:
        logger.critical("engine %s could not be loaded", settings.engine, exc_info=True)
        take_back(f"{type(error).__name__}: {error}")
        raise SystemExit(EXIT_NOT_LOADED) from error


def current_child() -> Child:
    """The child of this process."""
    if _child is None:
        raise RuntimeError("This process has not loaded an engine.")
    return _child


def make_parent(node: str) -> Parent:
    """Make this process the parent of a worker."""
    from worker.parent import Parent

    global _parent
    _parent = Parent(Settings.from_env(), node)
    return _parent


def start_parent(pool: type) -> None:
    """Have the parent of this process begin; leave by ``SystemExit`` when it may not.

    Celery swallows any other exception here.
    """
    from worker.pool import TaskPool

    try:
        if not issubclass(pool, TaskPool):
            raise SettingsError(
                f"Engines need processes of their own, made by worker.pool, not {pool.__module__}: "
                "leave out -P (--pool)."
            )
        parent().start()
    except SettingsError as error:
        logger.critical("the worker does not start: %s", error.message)
        raise SystemExit(EXIT_MISCONFIGURED) from error


def parent() -> Parent:
    """The parent that this process is."""
    if _parent is None:
        raise RuntimeError("This process is not a worker's parent.")
    return _parent
