"""The folder in which one stack keeps its state."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from scripts.stack.errors import CannotStartError
from scripts.stack.guard import GRACE_SECONDS

logger = logging.getLogger("up")

FLOWER_USER = "voicemill"
REDIS_MEMORY_SHARE = 4
"""Redis may take the n-th part of the machine's memory."""


class Home:
    """Names and makes what lies in a home; files with secrets are readable by their owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.redis = path / "redis"
        self.logs = path / "logs"
        self.pids = path / "pids.json"
        self.ports = path / "ports.json"
        self.redis_config = self.redis / "valkey.conf"
        self.redis_url = path / "redis.url"
        self.redis_password = path / "redis.password"
        self.flower_login = path / "flower.password"

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the home; gives the lock's file descriptor, which a process may inherit.

        Raises ``CannotStartError`` when another supervisor holds it or it can't be written.
        """
        with writes_to(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            take_lock(descriptor, self.path)
            yield descriptor
        finally:
            os.close(descriptor)

    def prepare(self) -> None:
        """Make the folders."""
        with writes_to(self.path):
            # The append-only file holds what users had spoken.
            self.redis.mkdir(mode=0o700, exist_ok=True)
            self.logs.mkdir(exist_ok=True)

    def log(self, part: str) -> Path:
        """Where a part's output goes."""
        return self.logs / f"{part}.log"

    def prepare_redis(self, port: int, memory: int) -> str:
        """Write the embedded server's configuration; gives its URL."""
        with writes_to(self.path):
            password = self._kept(self.redis_password, secrets.token_urlsafe(32))
            config = redis_config(self.redis, port, password, memory // REDIS_MEMORY_SHARE)
            write_private(self.redis_config, config)
            url = own_redis_url(password, port)
            write_private(self.redis_url, url + "\n")
        return url

    def starts_redis_at(self, url: str) -> bool:
        """Whether a URL, which a person may have exported, is that of this home's own server."""
        if not self.redis_password.exists():
            return False
        password = self.redis_password.read_text("utf-8").strip()
        return url == own_redis_url(password, self.kept_port("redis"))

    def prepare_flower(self) -> str:
        """The login of Flower, made at the first start."""
        with writes_to(self.path):
            return self._kept(self.flower_login, f"{FLOWER_USER}:{secrets.token_urlsafe(16)}")

    def kept_port(self, part: str) -> int:
        """The free port that a part was given at an earlier start; 0 if none."""
        return self._kept_ports().get(part, 0)

    def keep_port(self, part: str, port: int) -> None:
        """Give a part the same port at the next start."""
        with writes_to(self.path):
            write_private(self.ports, json.dumps({**self._kept_ports(), part: port}) + "\n")

    def write_pids(self, pids: Mapping[str, int]) -> None:
        """Say which part is which process; a full disk is no reason to lose the parts."""
        try:
            write_private(self.pids, json.dumps(dict(pids)) + "\n")
        except OSError as error:
            logger.warning("%s not written: %s", self.pids, error.strerror)

    def forget_run(self) -> None:
        """Remove what holds for a running stack only."""
        self.pids.unlink(missing_ok=True)
        self.redis_url.unlink(missing_ok=True)

    def _kept_ports(self) -> dict[str, int]:
        try:
            ports: dict[str, int] = json.loads(self.ports.read_text("utf-8"))
        # Not there, or half written by a full disk: other ports are as good.
        except (OSError, ValueError):
            return {}
        return ports

    def _kept(self, file: Path, fresh: str) -> str:
        """The secret in a file, or a fresh one that it holds from now on."""
        found = file.read_text("utf-8").strip() if file.exists() else ""
        if not found:
            write_private(file, fresh + "\n")
        return found or fresh


def take_lock(descriptor: int, home: Path) -> None:
    """Lock a file and write our pid into it; raises ``CannotStartError`` when it is held.

    After a supervisor was killed its guard holds the lock until the parts are gone: that is
    waited for.
    """
    give_up = time.monotonic() + GRACE_SECONDS + 2
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if holder_lives(descriptor) or time.monotonic() > give_up:
                raise CannotStartError(
                    f"Another stack runs in {home}; stop it, or give another home with --home."
                ) from error
            time.sleep(0.1)
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            return


def holder_lives(descriptor: int) -> bool:
    """Whether the process that wrote its pid into the lock is there; unknown counts as there."""
    written = os.pread(descriptor, 20, 0)
    if not written.isdigit():
        return True
    try:
        os.kill(int(written), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def writes_to(folder: Path, remedy: str = "give another home with --home") -> Iterator[None]:
    """Turn what the file system refuses into one line."""
    try:
        yield
    except OSError as error:
        raise CannotStartError(f"{folder} can't be written: {error.strerror}; {remedy}.") from error


def prepare_outputs(folder: Path) -> None:
    """Make the folder for audio and try to write there; raises ``CannotStartError``."""
    with writes_to(folder, "set VOICEMILL_OUTPUT_DIR to another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


def write_private(file: Path, text: str) -> None:
    """Replace a file by one that its owner alone can read."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as draft:
            draft.write(text)
        Path(name).replace(file)
    # Ctrl-C too must not leave a draft that holds a password.
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def own_redis_url(password: str, port: int) -> str:
    """Where the embedded server answers."""
    return f"redis://:{password}@127.0.0.1:{port}/0"


def redis_config(folder: Path, port: int, password: str, memory: int) -> str:
    """The configuration of the embedded server: durable, on loopback, with a password."""
    quoted = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    return f"""\
bind 127.0.0.1
port {port}
requirepass {password}
dir "{quoted}"
daemonize no
appendonly yes
appendfsync always
save ""
maxmemory {memory}
maxmemory-policy noeviction
"""


def memory_of_machine() -> int:
    """Bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
