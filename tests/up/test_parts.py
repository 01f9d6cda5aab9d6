"""What the parts of a stack are, from settings alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from api.context import MAX_WAITERS
from scripts.stack.parts import (
    API_THREADS,
    ROOT,
    api_part,
    api_url,
    flower_part,
    node_name,
    part_environ,
    redis_part,
    served_parts,
    worker_part,
)
from scripts.stack.supervisor import RestartPolicy
from voicemill.settings import Settings
from worker.exits import EXIT_MISCONFIGURED, EXIT_NOT_LOADED, EXIT_STUCK

SECRET = "very-secret"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_env(
        {},
        home=tmp_path,
        port=8123,
        flower_port=5123,
        workers=3,
        engine="tone",
        redis_url=f"redis://:{SECRET}@127.0.0.1:7000/0",
    )


def test_the_parts_start_clerk_worker_flower_api_and_so_stop_api_first(settings: Settings) -> None:
    names = [part.name for part in served_parts(settings, {}, "user:word")]
    assert names == ["clerk", "worker", "flower", "api"]


def test_no_secret_is_an_argument_or_in_the_text_of_a_part(settings: Settings) -> None:
    for part in served_parts(settings, {}, f"user:{SECRET}"):
        assert SECRET not in " ".join(part.argv)
        assert SECRET not in repr(part)
        assert part.env["VOICEMILL_REDIS_URL"] == settings.redis_url


def test_the_environment_of_a_part_gives_the_same_settings_again(settings: Settings) -> None:
    env = part_environ(settings, {"PATH": "/bin", "VOICEMILL_ENGINE": "hibari"})
    assert env["PATH"] == "/bin"
    assert Settings.from_env(env) == settings


def test_the_checkout_comes_before_what_the_user_has_on_the_python_path(
    settings: Settings,
) -> None:
    assert part_environ(settings, {"PYTHONPATH": "/mine"})["PYTHONPATH"] == f"{ROOT}:/mine"
    assert part_environ(settings, {})["PYTHONPATH"] == str(ROOT)


def test_the_worker_has_the_wanted_children_and_more_time_than_it_promises(
    settings: Settings,
) -> None:
    part = worker_part(settings, {})
    assert part.argv[:6] == (sys.executable, "-m", "celery", "-A", "worker.app", "worker")
    assert part.argv[part.argv.index("--concurrency") + 1] == "3"
    assert {"-E", "--without-gossip", "--without-mingle"} <= set(part.argv)
    assert part.stop_seconds > settings.stop_seconds
    assert part.hopeless_status == EXIT_NOT_LOADED
    assert part.misconfigured_status == EXIT_MISCONFIGURED


def test_a_worker_that_left_because_it_was_stuck_is_started_again(settings: Settings) -> None:
    part = worker_part(settings, {})
    assert EXIT_STUCK not in {part.hopeless_status, part.misconfigured_status}


def test_the_node_name_is_the_same_at_each_start_and_another_for_another_home() -> None:
    assert node_name(Path("/a")) == node_name(Path("/a"))
    assert node_name(Path("/a")) != node_name(Path("/b"))


def test_flower_listens_on_loopback_with_a_login_and_a_bounded_memory(settings: Settings) -> None:
    part = flower_part(settings, {}, "user:word")
    assert {"--address=127.0.0.1", "--port=5123", "--max_tasks=10000"} <= set(part.argv)
    assert part.env["FLOWER_BASIC_AUTH"] == "user:word"


@pytest.mark.parametrize(
    ("host", "bind", "url"),
    [
        ("127.0.0.1", "127.0.0.1:8123", "http://127.0.0.1:8123"),
        ("0.0.0.0", "0.0.0.0:8123", "http://127.0.0.1:8123"),
        ("::1", "[::1]:8123", "http://[::1]:8123"),
        ("::", "[::]:8123", "http://[::1]:8123"),
    ],
)
def test_the_url_is_one_that_works_here_whatever_the_api_binds(
    tmp_path: Path, host: str, bind: str, url: str
) -> None:
    settings = Settings.from_env({}, home=tmp_path, host=host, port=8123)
    argv = api_part(settings, {}).argv
    assert argv[argv.index("--bind") + 1] == bind
    assert api_url(settings) == url


def test_redis_gets_its_password_from_a_file() -> None:
    assert redis_part(Path("/bin/server"), Path("/home/conf"), {}).argv == (
        "/bin/server",
        "/home/conf",
    )


def test_the_pause_before_a_restart_doubles_up_to_half_a_minute() -> None:
    policy = RestartPolicy()
    pauses = [policy.pause(deaths) for deaths in (1, 2, 3, 6, 7, 8, 10_000)]
    assert pauses == [0.5, 1.0, 2.0, 16.0, 30.0, 30.0, 30.0]


def test_long_polls_can_hold_half_of_the_api_s_threads_at_most() -> None:
    assert API_THREADS >= 2 * MAX_WAITERS
    dockerfile = (ROOT / "api" / "Dockerfile").read_text("utf-8")
    assert f'"--threads={API_THREADS}"' in dockerfile
