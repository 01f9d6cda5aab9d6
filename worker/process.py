"""What lives once in a process: the child's engine, or the parent's watch over its children."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from typing import TYPE_CHECKING

from celery.worker import state

from voicemill.errors import (
    SettingsError,
    StoreRefusedError,
    StoreUnavailableError,
    VoicemillError,
)
from voicemill.queue import UNACKED_PREFIX
from voicemill.settings import Settings
from voicemill.store import Store

if TYPE_CHECKING:
    from worker.child import Child

logger = logging.getLogger(__name__)

EXIT_NOT_LOADED = 3
EXIT_MISCONFIGURED = 4
LOAD_TRIES = 3
"""Children that may fail to load, before any has loaded, until the worker gives up."""
LONGEST_BEAT_SECONDS = 5.0

_child: Child | None = None
_parent: Parent | None = None


def child_id(node: str, parent_pid: int, pid: int) -> str:
    """The same name from both sides of the fork."""
    return f"{node}/{parent_pid}/{pid}"


def start_child(node: str) -> None:
    """Load the engine in this process; leave by ``SystemExit`` when that can't be done.

    Celery swallows any other exception here and would hand work to an empty child.
    """
    # What an engine needs is imported by children only: the parent and Flower do without.
    from worker.child import Child

    global _child
    settings = Settings.from_env()
    try:
        _child = Child(settings, child_id(node, os.getppid(), os.getpid()), node)
    except SettingsError as error:
        logger.critical("engine %s can't be loaded: %s", settings.engine, error.message)
        raise SystemExit(EXIT_MISCONFIGURED) from error
    except VoicemillError as error:
        logger.critical("engine %s could not be loaded: %s", settings.engine, error.message)
        raise SystemExit(EXIT_NOT_LOADED) from error
    except Exception as error:
        logger.critical("engine %s could not be loaded", settings.engine, exc_info=True)
        raise SystemExit(EXIT_NOT_LOADED) from error


def current_child() -> Child:
    """The child of this process."""
    if _child is None:
        raise RuntimeError("This process has not loaded an engine.")
    return _child


class Parent:
    """The Celery parent: says that its node lives, and releases what dead children held."""

    def __init__(self, settings: Settings, node: str) -> None:
        self.node = node
        self.incarnation = f"{UNACKED_PREFIX}{node}:{uuid.uuid4().hex}"
        self._settings = settings
        self._store = Store.connect(settings.redis_url)
        self._stopping = threading.Event()
        self._any_loaded = False
        self._failed_loads = 0

    def start(self) -> None:
        """Release what an earlier process of this node name held, and begin to say we live."""
        try:
            for child in self._store.children_of(self.node):
                self._release(child.id, "Its worker was replaced.")
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("earlier children not looked up, their leases will run out: %s", error)
        threading.Thread(target=self._beat, name="node-heartbeat", daemon=True).start()

    def child_up(self) -> None:
        """A child has loaded its engine."""
        self._any_loaded = True

    def child_gone(self, pid: int, exit_code: int | None) -> None:
        """A child's process ended; what it held goes to others at once."""
        if not self._any_loaded and exit_code in (EXIT_NOT_LOADED, EXIT_MISCONFIGURED):
            self._failed_loads += 1
            if exit_code == EXIT_MISCONFIGURED or self._failed_loads == LOAD_TRIES:
                logger.critical("no child could load the engine; the worker stops")
                state.should_stop = exit_code
        self._release(
            child_id(self.node, os.getpid(), pid), f"Its process ended with status {exit_code}."
        )

    def stop(self) -> None:
        """Release what is left."""
        self._stopping.set()
        try:
            for child in self._store.children_of(self.node):
                self._release(child.id, "Its worker was stopped.")
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("children not released, their leases will run out: %s", error)

    def _release(self, child: str, message: str) -> None:
        try:
            held = self._store.release_child(
                child,
                self._settings.engine,
                max_attempts=self._settings.max_attempts,
                message=message,
            )
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("child %s not released, its lease will run out: %s", child, error)
            return
        if held:
            logger.error("child %s died with work in hand. %s", child, message)

    def _beat(self) -> None:
        pause = min(LONGEST_BEAT_SECONDS, self._settings.lease_seconds / 4)
        while True:
            try:
                self._store.beat_node(self.incarnation, self._settings.lease_seconds)
            except (StoreUnavailableError, StoreRefusedError) as error:
                logger.warning("heartbeat of the node not heard: %s", error)
            if self._stopping.wait(pause):
                return


def make_parent(node: str) -> Parent:
    """The parent of this process."""
    global _parent
    _parent = Parent(Settings.from_env(), node)
    return _parent


def child_gone(pid: int, exit_code: int | None) -> None:
    """Tell the parent of this process that a child ended."""
    if _parent is not None:
        _parent.child_gone(pid, exit_code)


def child_up() -> None:
    """Tell the parent of this process that a child has loaded its engine."""
    if _parent is not None:
        _parent.child_up()


def start_parent() -> None:
    """Begin the parent's watch."""
    if _parent is not None:
        _parent.start()


def stop_parent() -> None:
    """End the parent's watch."""
    if _parent is not None:
        _parent.stop()
