"""What the parts of a stack are, from settings alone."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from api.context import MAX_WAITERS
from scripts import up
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
    worker_settings,
)
from scripts.stack.supervisor import RestartPolicy
from voicemill.errors import SettingsError
from voicemill.pools import Pool
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


def several(settings: Settings, **options: object) -> Settings:
    engines = (Pool("hibari", 2), Pool("tone"))
    return replace(settings, engine="hibari", engines=engines, engine_options=options)


def test_each_of_several_engines_has_a_worker_with_its_children_and_options(
    settings: Settings,
) -> None:
    stack = several(settings, tone={"load_seconds": 1})
    parts = served_parts(stack, {}, "user:word")
    assert [part.name for part in parts] == [
        *("clerk", "worker-hibari", "worker-tone"),
        *("flower", "api"),
    ]
    hibari, tone = parts[1:3]
    ours = [Settings.from_env(part.env) for part in (hibari, tone)]
    assert [(one.engine, one.workers) for one in ours] == [("hibari", 2), ("tone", 3)]
    assert [dict(one.engine_options) for one in ours] == [{}, {"load_seconds": 1}]
    assert [one.pools for one in ours] == [{"hibari": 2, "tone": 3}] * 2
    assert [part.argv[part.argv.index("--concurrency") + 1] for part in (hibari, tone)] == list(
        "23"
    )
    names = [part.argv[part.argv.index("--hostname") + 1] for part in (hibari, tone)]
    assert names == [node_name(stack.home, "hibari"), node_name(stack.home, "tone")]
    api = Settings.from_env(parts[-1].env)
    assert (api.engine, list(api.pools)) == ("hibari", ["hibari", "tone"])


def test_a_stack_with_one_engine_looks_the_same_however_it_is_named(settings: Settings) -> None:
    listed = replace(settings, workers=8, engines=(Pool("tone", 3),))
    assert worker_settings(listed) == [settings]
    assert worker_part(*worker_settings(listed), {}).argv == worker_part(settings, {}).argv


@pytest.mark.parametrize("options", [{"load_seconds": 1}, {"piper": {}}, {"tone": 3}])
def test_options_of_no_engine_of_several_stop_the_start(
    settings: Settings, options: dict[str, object]
) -> None:
    with pytest.raises(SettingsError) as caught:
        worker_settings(several(settings, **options))
    assert caught.value.message == (
        f"VOICEMILL_ENGINE_OPTIONS: {next(iter(options))!r} can't be used: a stack with several "
        "engines takes a JSON object of options for each by its name, of hibari, tone."
    )


def test_workers_tell_their_children_how_many_threads_they_have_and_other_parts_have_one(
    settings: Settings,
) -> None:
    one = {part.name: part.env.get("OMP_NUM_THREADS") for part in served_parts(settings, {}, "")}
    assert one == {"clerk": "1", "worker": None, "flower": "1", "api": "1"}
    told = served_parts(settings, {"OMP_NUM_THREADS": "5"}, "")
    assert {part.env["OMP_NUM_THREADS"] for part in told} == {"5"}


def flags(*words: str) -> dict[str, object]:
    found = vars(up.parser().parse_args(words))
    return found | up.engines_of(found)


def test_flags_name_one_engine_or_several(capsys: pytest.CaptureFixture[str]) -> None:
    env = {"VOICEMILL_ENGINES": "piper,kokoro", "VOICEMILL_WORKERS": "4"}
    assert Settings.from_env(env, **flags()).pools == {"piper": 4, "kokoro": 4}
    assert Settings.from_env(env, **flags("--engine", "tone")).pools == {"tone": 4}
    both = Settings.from_env({}, **flags("--engine", "tone:2", "--engine", "hibari:1"))
    assert (both.engine, both.pools) == ("tone", {"tone": 2, "hibari": 1})
    with pytest.raises(SettingsError, match="--engine tone is given twice; tone:2 has two"):
        flags("--engine", "tone", "--engine", "tone")
    with pytest.raises(SystemExit):
        flags("--engine", "tone:none")
    assert "'tone:none' can't be used: give the name of an engine" in capsys.readouterr().err
