"""The real stack as a user starts it, for tests to use and to hurt."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import pytest
from celery import Celery
from prometheus_client.parser import text_string_to_metric_families

from tests.support import wait_until
from voicemill.queue import SYNTHESIZE, queue_name
from voicemill.store import Store

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 90.0


class Client:
    """Sends requests to a stack, again and again while its API is away."""

    def __init__(self, url: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self._headers = headers

    def logs(self) -> str:
        """What to show when nothing is answered."""
        return ""

    def submit(self, texts: list[str], **fields: Any) -> str:
        """Send a job; gives its id. Waits for an API that is away."""
        body = {"inputs": [{"input": text} for text in texts], **fields}
        answer = self.request("POST", "/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["id"]
        return job_id

    def job(self, job_id: str) -> dict[str, Any]:
        """The job now."""
        job: dict[str, Any] = self.request("GET", f"/v1/jobs/{job_id}").json()
        return job

    def wait_for(self, job_id: str, seconds: float = 120) -> dict[str, Any]:
        """Wait until a job has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            job = self.job(job_id)
            if job.get("status") in {"completed", "failed", "cancelled", "expired"}:
                return job
            time.sleep(0.1)
        pytest.fail(f"job {job_id} did not end in {seconds} s: {self.job(job_id)}\n{self.logs()}")

    def items(self, job_id: str) -> list[dict[str, Any]]:
        """Every item of a job."""
        items: list[dict[str, Any]] = []
        after = ""
        while True:
            path = f"/v1/jobs/{job_id}/items?limit=500" + (f"&after={after}" if after else "")
            page = self.request("GET", path).json()
            items += page["data"]
            if not page["has_more"]:
                return items
            after = page["last_id"]

    def counter(self, name: str, **labels: str) -> float:
        """What a counter of ``/metrics`` has come to, over all samples with these labels."""
        families = text_string_to_metric_families(self.request("GET", "/metrics").text)
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, sent again while the API is away."""
        deadline = time.monotonic() + 60
        while True:
            try:
                answer = httpx.request(
                    method, self.url + path, timeout=10, headers=self._headers, **options
                )
                if answer.status_code != 503:
                    return answer
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline:
                pytest.fail(f"{method} {path} was not answered in 60 s\n{self.logs()}")
            time.sleep(0.1)


class Stack(Client):
    """``scripts/up.py`` and what it started."""

    def __init__(self, home: Path, *flags: str, env: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.home = home
        self._flags = flags
        self._env = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start, and wait for the line ``ready URL``."""
        with (self.home.parent / "up.stderr").open("a") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, str(ROOT / "scripts/up.py"), "--home", str(self.home)),
                    *("--port", "0", "--flower-port", "0", *self._flags),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._env,
                cwd=ROOT,
            )
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            selector.select(READY_SECONDS)
        line = self._process.stdout.readline() if self._process.poll() is None else ""
        if not line.startswith("ready "):
            self.stop()
            pytest.fail(f"the stack did not come up:\n{self.logs()}")
        self.url = line.split()[1]

    def stop(self) -> int:
        """Ask it to stop; gives its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()

    def logs(self) -> str:
        """The last lines of every log."""
        files = [self.home.parent / "up.stderr", *sorted((self.home / "logs").glob("*.log"))]
        return "\n".join(
            f"--- {file.name}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-30:])
            for file in files
            if file.exists()
        )

    @property
    def redis_url(self) -> str:
        """Of the Redis that it started."""
        return (self.home / "redis.url").read_text("utf-8").strip()

    def pid(self, part: str) -> int:
        """The process of a part now."""
        return int(json.loads((self.home / "pids.json").read_text())[part])

    def children(self) -> list[int]:
        """Pids of the synthesis children that are known to work; none while the API is away."""
        try:
            answer = httpx.get(f"{self.url}/health", timeout=5).json()
        except httpx.TransportError:
            return []
        return [child["pid"] for child in answer["children"] if psutil.pid_exists(child["pid"])]

    def kill_part(self, part: str) -> bool:
        """Kill -9 a part; False when it is not running."""
        try:
            return self.kill_pid(self.pid(part))
        except KeyError:
            return False

    def kill_pid(self, pid: int) -> bool:
        """Kill -9, and wait until it is gone; False when it was gone already."""
        try:
            process = psutil.Process(pid)
            process.kill()
        except psutil.NoSuchProcess:
            return False
        wait_until(lambda: not alive(process), what=f"the end of {pid}")
        return True

    def wait_ready(self) -> None:
        """Wait until the stack says that it can work."""
        wait_until(self.is_ready, 60, "readiness")

    def is_ready(self) -> bool:
        """What ``/readyz`` says."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False


def alive(process: psutil.Process) -> bool:
    """False for a process that is gone or only waits to be reaped."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Worker:
    """A Celery worker alone, with one `tone` child."""

    def __init__(self, redis_url: str, folder: Path, *flags: str, **env: str) -> None:
        self._folder = folder
        self._url = redis_url
        self._flags = flags
        self._env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "VOICEMILL_REDIS_URL": redis_url,
            "VOICEMILL_HOME": str(folder),
            "VOICEMILL_ENGINE": "tone",
            "VOICEMILL_WORKERS": "1",
            **env,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.node = f"test-{os.getpid()}-{folder.name}@localhost"

    @property
    def pid(self) -> int:
        """The Celery parent."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What it wrote."""
        return (self._folder / "worker.log").read_text(errors="replace")

    def start(self) -> None:
        """Start, and wait until a child takes work."""
        self.launch()
        store = Store.connect(self._url)
        wait_until(
            lambda: (
                self.exit_status is not None
                or any(
                    child["node"] == self.node and child["takes_work"]
                    for child in store.snapshot().children
                )
            ),
            30,
            f"a child that takes work\n{self.log}",
        )

    def launch(self) -> None:
        """Start its process."""
        with (self._folder / "worker.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "celery", "-A", "worker.app", "worker"),
                    *("-n", self.node, "--without-gossip", "--without-mingle", *self._flags),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=ROOT,
                start_new_session=True,
            )

    @property
    def exit_status(self) -> int | None:
        """Its exit status once it has ended."""
        assert self._process is not None
        return self._process.poll()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Ask it to stop; gives its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(30)

    def inspect(self, command: str) -> dict[str, Any]:
        """What the worker answers to a remote control command."""
        with Celery(broker=self._url, set_as_current=False) as app:
            answer = getattr(app.control.inspect([self.node], timeout=5), command)()
        assert answer is not None, f"no answer to {command}:\n{self.log}"
        found: dict[str, Any] = answer[self.node]
        return found

    def send_pickled(self) -> None:
        """Send a message that would create a file if it were unpickled."""

        class Evil:
            def __reduce__(self) -> tuple[Any, ...]:
                return (os.mkdir, (str(marker),))

        marker = self._folder / "unpickled"
        with Celery(broker=self._url, set_as_current=False) as app:
            app.conf.task_serializer = "pickle"
            app.conf.accept_content = ["pickle"]
            app.send_task(SYNTHESIZE, args=(Evil(),), queue=queue_name("tone"))
        wait_until(lambda: "ContentDisallowed" in self.log, 10, "the refusal in the log")

    def pickle_ran(self) -> bool:
        """True when the pickled message was run."""
        return (self._folder / "unpickled").exists()
