"""docker-compose.yml and the Dockerfiles as data, read as Docker reads them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).resolve().parents[2]
COSYVOICE = "deploy/docker/worker-cosyvoice.Dockerfile"
DOCKERFILES = ("api/Dockerfile", "worker/Dockerfile", COSYVOICE)
REFERENCE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?::-(?P<default>[^${}]*))?\}")
"""A variable with its default, which holds no other: of nested ones the innermost."""


def references(text: str) -> dict[str, set[str]]:
    """Variables that a compose file reads, each with the defaults it has in different places."""
    found: dict[str, set[str]] = {}
    while match := REFERENCE.search(text):
        found.setdefault(match["name"], set()).add(match["default"] or "")
        text = text.replace(match[0], "")
    return found


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """A value of the compose file with its variables filled in; unset ones take their default."""
    if isinstance(value, str):
        while match := REFERENCE.search(value):
            filled = variables.get(match["name"]) or match["default"] or ""
            value = value.replace(match[0], filled)
        return value
    if isinstance(value, dict):
        return {key: interpolate(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [interpolate(inner, variables) for inner in value]
    return value


@cache
def compose_text() -> str:
    """The file as it stands."""
    return (ROOT / "docker-compose.yml").read_text("utf-8")


def compose(**variables: str) -> dict[str, Any]:
    """The file with merges and variables resolved."""
    resolved: dict[str, Any] = interpolate(yaml.safe_load(compose_text()), variables)
    return resolved


def services(**variables: str) -> dict[str, dict[str, Any]]:
    """Its services by name."""
    found: dict[str, dict[str, Any]] = compose(**variables)["services"]
    return found


def seconds(duration: str) -> int:
    """``20s`` or ``1m30s`` as a number."""
    match = re.fullmatch(r"(?:(\d+)m)?(\d+)s", duration)
    assert match, duration
    return 60 * int(match[1] or 0) + int(match[2])


@dataclass
class Stage:
    """What one target of a Dockerfile runs, with all that it inherits."""

    name: str
    parent: str
    env: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    """Paths of the checkout that are copied in."""
    runs: list[str] = field(default_factory=list)
    copied_from: list[str] = field(default_factory=list)
    shell_forms: list[str] = field(default_factory=list)

    def fill(self, folder: Path) -> Path:
        """Make a folder hold what the image's working folder holds."""
        for source in self.sources:
            target = folder / source
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, target)
        return folder


@cache
def structure(dockerfile: str) -> list[dict[str, Any]]:
    """The instructions of a Dockerfile."""
    content = (ROOT / dockerfile).read_bytes()
    parsed: list[dict[str, Any]] = DockerfileParser(fileobj=BytesIO(content)).structure
    return [one for one in parsed if one["instruction"] != "COMMENT"]


def stages(dockerfile: str) -> dict[str, Stage]:
    """The stages of a Dockerfile by name; the last one without a name is ``final``."""
    found: dict[str, Stage] = {}
    current = Stage("", "")
    for one in structure(dockerfile):
        if one["instruction"] == "FROM":
            parent, _, name = one["value"].partition(" AS ")
            current = inherit(found.get(parent), parent, name or "final")
            found[current.name] = current
        else:
            apply(current, one["instruction"], one["value"])
    return found


def inherit(parent: Stage | None, parent_name: str, name: str) -> Stage:
    """A stage that begins as its parent ends."""
    if parent is None:
        return Stage(name, parent_name)
    return Stage(
        name,
        parent_name,
        dict(parent.env),
        parent.user,
        list(parent.entrypoint),
        list(parent.command),
        list(parent.sources),
        list(parent.runs),
        list(parent.copied_from),
        list(parent.shell_forms),
    )


def apply(stage: Stage, instruction: str, value: str) -> None:
    """One instruction's effect."""
    match instruction:
        case "USER":
            stage.user = value
        case "ENV":
            stage.env |= dict(pair.split("=", 1) for pair in value.split())
        case "RUN":
            stage.runs.append(value)
        case "COPY" if value.startswith("--from="):
            stage.copied_from.append(value.split()[0].removeprefix("--from="))
        case "COPY":
            stage.sources += value.split()[:-1]
        case "ENTRYPOINT" | "CMD":
            if not value.startswith("["):
                stage.shell_forms.append(f"{instruction} {value}")
                return
            setattr(
                stage, "entrypoint" if instruction == "ENTRYPOINT" else "command", json.loads(value)
            )


def image_of(service: Mapping[str, Any]) -> Stage:
    """The stage that a service of the compose file runs."""
    build = service["build"]
    return stages(build["dockerfile"])[build.get("target", "final")]


def command_of(service: Mapping[str, Any]) -> list[str]:
    """The exact words that a service runs."""
    image = image_of(service)
    if "entrypoint" in service:
        return [*service["entrypoint"], *service.get("command", [])]
    return [*image.entrypoint, *service.get("command", image.command)]
