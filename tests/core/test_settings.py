"""Settings: read once, frozen, and loud about a bad value."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicemill import parsers
from voicemill.errors import SettingsError
from voicemill.parsers import MemoryLimit
from voicemill.pools import parse_pools
from voicemill.settings import Settings

FIELDS = dataclasses.fields(Settings)
ROOT = Path(__file__).parents[2]

COUNTS = ["-1", "1.5", "many", "1e3", "+2", "0x10"]
SECONDS = ["-1", "nan", "inf", "soon", "1s", "0.0001", "1e10", "1e300"]
BAD: dict[Callable[[str], Any], list[str]] = {
    parsers.parse_text: [],
    parsers.parse_path: ["~no-such-user-anywhere/out"],
    parsers.parse_count: [*COUNTS, "0", "off"],
    parsers.parse_optional_count: COUNTS,
    parsers.parse_seconds: [*SECONDS, "0", "off"],
    parsers.parse_optional_seconds: SECONDS,
    parsers.parse_lease: [*SECONDS, "0", "off", "0.9"],
    parsers.parse_stuck: [*SECONDS, "4.9"],
    parsers.parse_port: ["-1", "65536", "http", "80.0"],
    parsers.parse_megabytes: COUNTS,
    parsers.parse_memory_limit: [
        "10000",
        "85",
        "10GB",
        "101%",
        "1x",
        "0.5x",
        "-1MiB",
        "0%",
        "5 MiB",
    ],
    parsers.parse_share: ["30", "0%", "101%", "30 %", "-5%", "half"],
    parsers.parse_factor: ["1", "0.5", "inf", "nan", "1.5x"],
    parsers.parse_optional_text: [],
    parsers.parse_optional_path: ["~no-such-user-anywhere/model"],
    parsers.parse_optional_program: ["python3", "bin/python", "~no-such-user-anywhere/python"],
    parsers.parse_switch: ["yes", "true", "2", "ON!"],
    parsers.parse_options: ["[]", "null", "3", "{", "load_seconds=3"],
    parsers.parse_log_level: ["loud", "10"],
    parse_pools: ["tone:0", "tone:x", "tone,", "tone,tone:2", "a b", ":2"],
    parsers.parse_without_workers: ["wait", "on"],
    parsers.parse_threads: [*COUNTS, "0", "off"],
}
"""What each parser must refuse."""

whole = st.integers(1, 10**9).map(str)
off = st.sampled_from(["off", "0"])
decimals = st.decimals(0, 10**7, places=3, allow_nan=False)
seconds = st.floats(1e-3, 1e9).map(str)
words = st.text("abcdefghijklmnop0123456789.:/-", min_size=1, max_size=30)
names = st.from_regex("[a-z][a-z0-9_.-]{0,8}", fullmatch=True).filter(lambda name: name != "off")
GOOD: dict[Callable[[str], Any], st.SearchStrategy[str]] = {
    parsers.parse_text: words,
    parsers.parse_path: words.map(lambda text: f"/srv/{text}"),
    parsers.parse_count: whole,
    parsers.parse_optional_count: whole | off,
    parsers.parse_seconds: seconds,
    parsers.parse_optional_seconds: seconds | off,
    parsers.parse_lease: st.floats(1, 1e9).map(str),
    parsers.parse_stuck: st.floats(5, 1e9).map(str) | off,
    parsers.parse_port: st.integers(0, 65535).map(str),
    parsers.parse_megabytes: whole | off,
    parsers.parse_memory_limit: off
    | decimals.filter(lambda number: number > 0).map(lambda number: f"{number}MiB")
    | decimals.filter(lambda number: 0 < number <= 100).map(lambda number: f"{number}%")
    | decimals.filter(lambda number: number > 1).map(lambda number: f"{number}x"),
    parsers.parse_share: off
    | decimals.filter(lambda number: 0 < number <= 100).map(lambda number: f"{number}%"),
    parsers.parse_factor: off | decimals.filter(lambda number: number > 1).map(str),
    parsers.parse_optional_text: words | off,
    parsers.parse_optional_path: off | words.map(lambda text: f"/srv/{text}"),
    parsers.parse_optional_program: off | words.map(lambda text: f"/srv/{text}"),
    parsers.parse_switch: st.sampled_from(["on", "1", "off", "0"]),
    parsers.parse_options: st.dictionaries(
        words, st.none() | st.booleans() | st.integers() | st.text(max_size=9), max_size=3
    ).map(json.dumps),
    parsers.parse_log_level: st.sampled_from(["debug", "INFO", "Warning", "ERROR", "critical"]),
    parse_pools: off
    | st.dictionaries(names, st.none() | st.integers(1, 99), min_size=1, max_size=3).map(
        lambda pools: ",".join(
            name if children is None else f"{name}:{children}" for name, children in pools.items()
        )
    ),
    parsers.parse_without_workers: st.sampled_from(["queue", "refuse"]),
    parsers.parse_threads: whole | st.just("auto"),
}
"""What each parser must take."""

environments = st.fixed_dictionaries(
    {},
    optional={
        variable: GOOD[one.metadata["parse"]]
        for one in FIELDS
        for variable in [f"VOICEMILL_{one.name.upper()}"]
        # Each has to agree with the other.
        if not one.name.endswith("_batch_limit_seconds") and one.name != "engine"
    },
)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (f"VOICEMILL_{one.name.upper()}", text)
        for one in FIELDS
        for text in BAD[one.metadata["parse"]]
    ],
)
def test_a_bad_value_stops_the_start_and_names_its_variable(variable: str, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({variable: text})
    assert caught.value.message.startswith(f"{variable}={text!r} can't be used: give ")
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"VOICEMILL_MIN_BATCH_LIMIT_SECONDS": "4000"}, ["=4000 ", "3600", "VOICEMILL_MAX_"]),
        ({"VOICEMILL_MAX_BATCH_LIMIT_SECONDS": "60"}, ["=120 ", " 60 ", "VOICEMILL_MAX_"]),
    ],
)
def test_a_limit_of_batches_that_no_batch_can_keep_stops_the_start(
    environ: dict[str, str], named: list[str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(environ)
    assert all(one in caught.value.message for one in named)


def test_an_empty_or_blank_variable_means_the_default() -> None:
    empty = {f"VOICEMILL_{one.name.upper()}": "" for one in FIELDS}
    assert Settings.from_env(empty) == Settings.from_env({}) == Settings()
    assert Settings.from_env({"VOICEMILL_PORT": "  "}).port == 8080


@settings(max_examples=40, deadline=None)
@given(environ=environments)
def test_settings_come_back_the_same_through_the_environment(environ: dict[str, str]) -> None:
    read = Settings.from_env(environ)
    assert Settings.from_env(read.to_env()) == read


def test_the_environment_of_a_child_names_every_setting() -> None:
    assert set(Settings().to_env()) == {f"VOICEMILL_{one.name.upper()}" for one in FIELDS}


def test_settings_are_frozen() -> None:
    settings = Settings.from_env({"VOICEMILL_ENGINE_OPTIONS": '{"load_seconds": 3}'})
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.port = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.engine_options["load_seconds"] = 4  # type: ignore[index]


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEMILL_ENGINE", "tone")
    settings = Settings.from_env()
    monkeypatch.setenv("VOICEMILL_ENGINE", "hibari")
    assert settings.engine == "tone"


def test_the_first_of_several_engines_is_the_default_unless_another_of_them_is_named() -> None:
    several = {"VOICEMILL_ENGINES": "tone:3,hibari", "VOICEMILL_WORKERS": "2"}
    read = Settings.from_env(several)
    assert (read.engine, read.pools) == ("tone", {"tone": 3, "hibari": 2})
    assert Settings.from_env({**several, "VOICEMILL_ENGINE": "hibari"}).engine == "hibari"
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({**several, "VOICEMILL_ENGINE": "piper"})
    assert caught.value.message == (
        "VOICEMILL_ENGINE='piper' can't be used: give one of VOICEMILL_ENGINES, which are tone, "
        "hibari."
    )


def test_one_engine_is_a_stack_with_one_pool() -> None:
    assert Settings.from_env({}, engine="tone", workers=3).pools == {"tone": 3}


def test_a_flag_beats_the_environment() -> None:
    environ = {"VOICEMILL_PORT": "8081", "VOICEMILL_ENGINE": "hibari"}
    settings = Settings.from_env(environ, port=9090)
    assert (settings.port, settings.engine) == (9090, "hibari")


def test_outputs_follow_the_home_unless_they_are_told_otherwise() -> None:
    assert Settings.from_env({"VOICEMILL_HOME": "/srv/a"}).output_dir == Path("/srv/a/outputs")
    assert Settings.from_env({}, home=Path("/srv/b")).output_dir == Path("/srv/b/outputs")
    both = {"VOICEMILL_HOME": "/srv/a", "VOICEMILL_OUTPUT_DIR": "/data"}
    assert Settings.from_env(both).output_dir == Path("/data")


def test_paths_are_absolute_and_know_the_users_home() -> None:
    assert Settings.from_env({"VOICEMILL_OUTPUT_DIR": "out"}).output_dir == Path.cwd() / "out"
    assert Settings.from_env({"VOICEMILL_HOME": "~/v"}).home == (Path.home() / "v").resolve()


@pytest.mark.parametrize("text", ["off", "0"])
@pytest.mark.parametrize(
    "name", ["max_tasks_per_child", "max_age_seconds", "gpu_memory_limit", "host_memory_limit"]
)
def test_off_and_zero_switch_a_limit_off(name: str, text: str) -> None:
    assert getattr(Settings.from_env({f"VOICEMILL_{name.upper()}": text}), name) is None


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("10000MiB", MemoryLimit("mebibytes", 10000.0)),
        ("2500000MiB", MemoryLimit("mebibytes", 2500000.0)),
        ("85%", MemoryLimit("share", 0.85)),
        ("7%", MemoryLimit("share", 0.07)),
        ("1.6x", MemoryLimit("baseline", 1.6)),
    ],
)
def test_a_memory_limit_reads_and_writes_as_a_user_would(text: str, limit: MemoryLimit) -> None:
    assert parsers.parse_memory_limit(text) == limit
    assert str(limit) == text


def test_every_setting_says_what_it_is_for() -> None:
    for one in FIELDS:
        assert one.metadata["doc"].endswith("."), one.name
        assert one.metadata["parse"] in BAD, one.name


@pytest.mark.parametrize(
    ("text", "kept", "results"),
    [
        ("", 604800.0, 604800),
        ("off", None, 604800),
        ("0", None, 604800),
        ("3600", 3600.0, 3600),
        ("0.5", 0.5, 1),
    ],
)
def test_audio_may_be_kept_for_ever_and_celery_s_results_never_are(
    text: str, kept: float | None, results: int
) -> None:
    environ = {"VOICEMILL_RETENTION_SECONDS": text}
    assert Settings.from_env(environ).retention_seconds == kept
    found = subprocess.run(
        [sys.executable, "-c", "import celeryconfig; print(celeryconfig.result_expires)"],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(found.stdout) == results


def test_the_python_of_an_engine_is_the_one_of_its_virtual_environment(tmp_path: Path) -> None:
    """Its ``python`` is a link to another, which knows nothing of the packages there."""
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    found = Settings.from_env({"VOICEMILL_ENGINE_PYTHON": str(python)})
    assert found.engine_python == python
    assert Settings.from_env(found.to_env()).engine_python == python
