"""The whole stack as ``scripts/up.py`` runs it, with the `tone` engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx
import pytest

from scripts.stack.parts import ROOT
from tests.support import Valkey, wait_until
from tests.worker.cosyvoice_world import World
from worker.engines.cosy.options import UPSTREAM, download

FLAGS = ("--port", "0", "--flower-port", "0", "--engine", "tone", "--workers", "1")


class Up:
    """The command on one home, and what can be seen of it from outside."""

    def __init__(self, home: Path, **env: str) -> None:
        self.home = home
        self._stderr = home.with_suffix(".stderr")
        self.url = ""
        with self._stderr.open("a") as stderr:
            self.process = subprocess.Popen(
                command(home),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, **env},
            )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def __enter__(self) -> Self:
        line = self.output.readline()
        if not line.startswith("ready http://127.0.0.1:"):
            self.__exit__()
            pytest.fail(self.messages)
        self.url = line.split()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.output.close()

    @property
    def messages(self) -> str:
        return self._stderr.read_text()

    @property
    def pids(self) -> dict[str, int]:
        found: dict[str, int] = json.loads((self.home / "pids.json").read_text())
        return found

    @property
    def redis_url(self) -> str:
        return (self.home / "redis.url").read_text()

    def submit(self, text: str) -> str:
        answer = httpx.post(f"{self.url}/v1/jobs", json={"inputs": [{"input": text}]})
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["id"]
        return job_id

    def status(self, job_id: str) -> str:
        status: str = httpx.get(f"{self.url}/v1/jobs/{job_id}").json()["status"]
        return status


def command(home: Path) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / "up.py"), "--home", str(home), *FLAGS]


def left(home: Path) -> list[str]:
    """Command lines of what was started for a home and still runs."""
    found = []
    mark = f"VOICEMILL_HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with Up(tmp_path / "home") as up:
        yield up


def test_a_stack_starts_serves_and_stops_without_a_trace(up: Up) -> None:
    assert sorted(up.pids) == ["api", "clerk", "flower", "redis", "worker"]
    job_id = up.submit("Hello there.")
    wait_until(lambda: up.status(job_id) == "completed", 20, "the job")
    assert list((up.home / "outputs").rglob("*.wav"))

    # Flower answers its owner and nobody else; the secrets are no arguments.
    flower = next(line.split()[2] for line in up.messages.splitlines() if "Flower" in line)
    login = (up.home / "flower.password").read_text().strip()
    assert httpx.get(flower).status_code == 401
    assert httpx.get(flower, auth=tuple(login.split(":"))).status_code in (200, 302)
    password = (up.home / "redis.password").read_text().strip()
    running = left(up.home)
    assert len(running) >= 7
    assert not any(password in line or login in line for line in running)

    second = subprocess.run(command(up.home), capture_output=True, text=True, timeout=30)
    assert second.returncode == 2
    assert second.stdout == ""
    assert second.stderr.startswith(f"Another stack runs in {up.home}")
    assert second.stderr.count("\n") == 1

    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 0
    assert up.output.read() == ""
    stopped = [line.split()[1] for line in up.messages.splitlines() if " stopped (" in line]
    assert stopped == ["api", "flower", "worker", "clerk", "redis"]
    assert up.messages.count("stopped (exit status 0)") == 5
    assert left(up.home) == []


@pytest.mark.full
def test_a_killed_supervisor_leaves_nothing_and_the_next_has_its_jobs_and_drains_on(
    up: Up,
) -> None:
    job_id = up.submit("Before the fall.")
    wait_until(lambda: up.status(job_id) == "completed", 20, "the job")
    old, redis_url = up.pids, up.redis_url
    worker = httpx.get(f"{up.url}/v1/workers").json()["data"][0]["id"]
    assert httpx.post(f"{up.url}/v1/workers/{worker}/drain").status_code == 202
    up.process.kill()
    up.process.wait()

    # What the first run's URL was exported as names no other Redis than the home's own.
    with Up(up.home, VOICEMILL_REDIS_URL=redis_url.strip()) as again:
        assert "redis" in again.pids
        assert (again.url, again.redis_url) == (up.url, redis_url)
        # Ready means a child of this run, though the store still knows those of the last.
        children = httpx.get(f"{again.url}/health").json()["children"]
        groups = {group_of(child["pid"]) for child in children}
        assert again.pids["worker"] in groups
        assert not set(old.values()) & set(again.pids.values())
        assert again.status(job_id) == "completed"
        later = again.submit("After it.")
        assert again.status(later) == "queued"
        assert httpx.post(f"{again.url}/v1/workers/{worker}/resume").status_code == 202
        wait_until(lambda: again.status(later) == "completed", 30, "the job after")
        again.process.terminate()
        assert again.process.wait(60) == 0
    assert left(up.home) == []


def group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


@pytest.mark.full
def test_an_option_that_the_engine_refuses_ends_the_start_with_one_line(tmp_path: Path) -> None:
    flags = [*command(tmp_path / "home"), "--engine-options", '{"no_such": 1}']
    ended = subprocess.run(flags, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.splitlines()[-1].startswith(
        "engine tone can't be loaded: VOICEMILL_ENGINE_OPTIONS: tone has no option 'no_such'; "
    )
    assert left(tmp_path / "home") == []


def test_all_that_an_engine_lacks_is_listed_before_anything_is_started(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.make_model()
    (world.model_dir / "llm.pt").unlink()
    options = {"checkout": str(tmp_path / "none"), "model_dir": str(world.model_dir)}
    home = tmp_path / "home"
    flags = ["--engine", "cosyvoice", "--engine-options", json.dumps(options)]
    script = [sys.executable, str(ROOT / "scripts" / "up.py"), "--home", str(home), *flags]

    ended = subprocess.run(script, capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines() == [
        "cosyvoice can't start; nothing was started. It lacks:",
        f"  {tmp_path / 'none'}, a checkout of CosyVoice",
        f"    run: git clone --recursive {UPSTREAM} {tmp_path / 'none'}",
        f"  {world.model_dir / 'llm.pt'}",
        f"    run: {download(world.model_dir, 3, Path(sys.executable))}",
    ]
    assert not home.exists()


@pytest.mark.full
def test_a_redis_of_the_users_is_used_and_left_alone(tmp_path: Path, own_valkey: Valkey) -> None:
    with Up(tmp_path / "home", VOICEMILL_REDIS_URL=own_valkey.url) as up:
        assert sorted(up.pids) == ["api", "clerk", "flower", "worker"]
        job_id = up.submit("Hello there.")
        wait_until(lambda: up.status(job_id) == "completed", 20, "the job")
        up.process.terminate()
        assert up.process.wait(60) == 0
    assert own_valkey.answers()
    assert left(tmp_path / "home") == []


@pytest.mark.full
def test_two_stacks_run_side_by_side_and_a_killed_part_comes_back(up: Up, tmp_path: Path) -> None:
    with Up(tmp_path / "other") as other:
        assert other.url != up.url
        before = up.pids
        for part in ("api", "clerk", "worker", "flower", "redis"):
            os.kill(before[part], signal.SIGKILL)
        wait_until(lambda: len(set(up.pids.values()) - set(before.values())) == 5, 20, "five parts")
        wait_until(lambda: is_ready(up), 60, "readiness again")
        job_id = up.submit("Back again.")
        wait_until(lambda: up.status(job_id) == "completed", 30, "the job")
        assert is_ready(other)
        for stack in (up, other):
            stack.process.terminate()
        assert up.process.wait(60) == 0
        assert other.process.wait(60) == 0


def is_ready(up: Up) -> bool:
    try:
        return httpx.get(f"{up.url}/readyz").status_code == 200
    except httpx.TransportError:
        return False
