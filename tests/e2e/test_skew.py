"""Nodes whose wall clocks are hours apart agree on leases and deadlines, which go by Redis's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.solo import SoloWorker, assert_each_spoken_once
from tests.e2e.stack import ROOT
from tests.support import TONE, free_port, wait_until
from voicemill.jobs import ItemStatus
from voicemill.store import Store

pytestmark = pytest.mark.full

HOUR = 3600
LEASE_SECONDS = 2.0
LONG = "{tone:seconds=4} Twice as long as a lease."
SOURCE = Path(__file__).with_name("clock.c")

Clock = Callable[[int], dict[str, str]]


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    """The environment of a process whose wall clock is so many seconds ahead."""
    gcc = shutil.which("gcc")
    if gcc is None:
        if os.environ.get("CI"):
            pytest.fail("The clock that is ahead needs gcc, and CI has to have it.")
        pytest.skip("no gcc to compile the clock with")
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")
    subprocess.run([gcc, *flags, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return lambda seconds: {"LD_PRELOAD": str(library), "SKEW_SECONDS": str(seconds)}


@contextmanager
def process(log: Path, *arguments: str, **env: str) -> Iterator[None]:
    """A Python process of the stack."""
    with log.open("wb") as file:
        started = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        assert started.poll() is None, log.read_text()
    finally:
        started.terminate()
        started.wait(30)


def settings_of(redis_url: str, folder: Path) -> dict[str, str]:
    """The environment of a part."""
    return {
        "VOICEMILL_REDIS_URL": redis_url,
        "VOICEMILL_HOME": str(folder),
        "VOICEMILL_ENGINE": "tone",
        "VOICEMILL_LEASE_SECONDS": str(LEASE_SECONDS),
    }


def test_a_worker_and_a_clerk_with_other_clocks_take_nothing_from_others_and_lose_nothing(
    clock: Clock, redis_url: str, tmp_path: Path
) -> None:
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
    ahead, behind = clock(2 * HOUR), clock(-2 * HOUR)
    lease = {"VOICEMILL_LEASE_SECONDS": str(LEASE_SECONDS)}
    with (
        SoloWorker(redis_url, tmp_path / "right", **lease) as right,
        SoloWorker(redis_url, tmp_path / "wrong", **lease, **ahead) as wrong,
        process(
            tmp_path / "clerk.log", "worker.clerk", **settings_of(redis_url, tmp_path), **behind
        ),
    ):
        apart = wrong.record.started_at - psutil.Process(wrong.pid).create_time()
        assert apart == pytest.approx(2 * HOUR, abs=60), "the clock is another"
        job_id = begin(right, "One.", "Another.")
        items = right.wait_for(job_id)
        assert_each_spoken_once(items)
        for at in (at for one in items for at in (one.started_at, one.completed_at)):
            assert at == pytest.approx(time.time(), abs=60)
        for worker in (right, wrong):
            worker.wait_until("its one item", partial(has_spoken_one, worker))
        job_id = begin(right, "A third.", "A fourth.")
        wrong.__exit__()
        assert sorted(one.attempts for one in right.wait_for(job_id)) == [1, 2]


def begin(worker: SoloWorker, *texts: str) -> str:
    """A job of as many items as there are children, all of them in hand."""
    job_id = worker.submit(*(f"{LONG} {text}" for text in texts))

    def statuses() -> set[ItemStatus]:
        return {one.status for one in worker.store.items(job_id)}

    worker.wait_until("all in hand", lambda: statuses() == {ItemStatus.IN_PROGRESS})
    return job_id


def has_spoken_one(worker: SoloWorker) -> bool:
    """Whether the only child of a worker says so."""
    (child,) = (c for c in worker.store.snapshot().children if c["node"] == worker.node)
    return bool(child["items"] == 1)


def test_a_deadline_that_an_api_with_another_clock_sets_is_kept_to_the_second(
    clock: Clock, redis_url: str, tmp_path: Path
) -> None:
    store = Store.connect(redis_url)
    store.publish_engine(TONE)
    part, port = settings_of(redis_url, tmp_path), free_port()
    address = ("--bind", f"127.0.0.1:{port}", "--no-control-socket", "api.wsgi:app")
    url = f"http://127.0.0.1:{port}"
    api = {**part, **clock(-HOUR), "VOICEMILL_FREE_SPACE_FLOOR_MB": "off"}
    with (
        process(tmp_path / "api.log", "gunicorn", "--worker-class", "gthread", *address, **api),
        process(tmp_path / "clerk.log", "worker.clerk", **part, **clock(HOUR)),
        httpx.Client(base_url=url, trust_env=False, timeout=30) as client,
    ):
        wait_until(lambda: is_up(client), 60, "the API")
        wait_until(lambda: store.snapshot().clerks == 1, 30, "the clerk")
        began = time.monotonic()
        made = client.post(
            "/v1/jobs", json={"inputs": [{"input": "Hello."}], "deadline_seconds": 5}
        ).json()
        assert made["created_at"] == pytest.approx(time.time(), abs=2)
        assert made["expires_at"] == pytest.approx(time.time() + 5, abs=2)
        wait_until(
            lambda: client.get(f"/v1/jobs/{made['id']}").json()["status"] == "expired",
            20,
            "the deadline",
        )
        assert 4.9 < time.monotonic() - began < 8
    (item,) = store.items(made["id"])
    assert (item.status, item.attempts) == (ItemStatus.EXPIRED, 0)
    store.close()


def is_up(client: httpx.Client) -> bool:
    """Whether the API answers."""
    try:
        return client.get("/healthz").status_code == 200
    except httpx.ConnectError:
        return False
