"""docker-compose.yml: valid, closed to the outside, bounded, and honest about readiness."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.containers.images import (
    ROOT,
    command_of,
    compose,
    compose_text,
    image_of,
    references,
    seconds,
    services,
)
from voicemill.settings import Settings
from worker.engines.cosy.options import KNOWN_COMMIT

OURS = ("api", "worker", "worker-gpu", "worker-cosyvoice", "clerk", "flower")
ON_GPU = ("worker-gpu", "worker-cosyvoice")
OUTPUTS = "/var/lib/voicemill/outputs"


def env_example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
    assert len(pairs) == len({name for name, _ in pairs})
    return dict(pairs)


def own_settings(service: dict[str, Any]) -> Settings:
    """What the service's environment means."""
    environ = image_of(service).env | {k: str(v) for k, v in service["environment"].items()}
    return Settings.from_env(environ)


def test_the_file_keeps_to_the_compose_schema() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]

    done = subprocess.run(
        [*check, str(ROOT / "docker-compose.yml")], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout


def test_the_services_are_the_parts_of_the_product() -> None:
    assert services().keys() == {"redis", *OURS}
    started = {name for name, one in services().items() if "profiles" not in one}
    assert started == {"redis", "api", "worker", "clerk", "flower"}
    assert services()["worker-gpu"]["profiles"] == ["gpu"]
    assert services()["worker-cosyvoice"]["profiles"] == ["cosyvoice"]


def test_env_example_explains_every_variable_with_its_default() -> None:
    defaults = {name: " ".join(found - {""}) for name, found in references(compose_text()).items()}
    # Unset, it is left to the GPU worker, and the CPU worker's engine speaks for the API.
    assert defaults.pop("VOICEMILL_GPU_ENGINE") == "transformers"
    assert env_example() == {**defaults, "VOICEMILL_GPU_ENGINE": ""}
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    assigned = [n for n, line in enumerate(lines) if line and not line.startswith("#")]
    # A variable has its explanation above it, or shares that of the group it stands in.
    assert all(lines[n - 1].startswith("#") or n - 1 in assigned for n in assigned)


def test_redis_is_durable_has_a_password_and_is_not_published() -> None:
    config = compose(REDIS_PASSWORD="s3cret")["configs"]["redis"]["content"].splitlines()

    assert {
        "appendonly yes",
        "appendfsync always",
        "maxmemory-policy noeviction",
        "requirepass s3cret",
        "dir /data",
    } <= set(config)
    redis = services()["redis"]
    assert "ports" not in redis
    assert redis["networks"] == ["queue"]
    assert compose()["networks"]["queue"] == {"internal": True}
    assert redis["volumes"] == ["redis:/data"]


def test_the_password_reaches_every_part() -> None:
    resolved = services(REDIS_PASSWORD="s3cret")

    for name in OURS:
        url = resolved[name]["environment"]["VOICEMILL_REDIS_URL"]
        assert url == "redis://:s3cret@redis:6379/0"
    assert resolved["redis"]["environment"] == {"REDISCLI_AUTH": "s3cret"}


def test_only_the_api_and_flower_are_published_and_on_loopback_unless_told() -> None:
    published = {name: one["ports"] for name, one in services().items() if "ports" in one}

    assert published == {"api": ["127.0.0.1:8080:8080"], "flower": ["127.0.0.1:5555:5555"]}
    opened = services(API_BIND="0.0.0.0", API_PORT="80")
    assert opened["api"]["ports"] == ["0.0.0.0:80:8080"]
    assert services()["flower"]["environment"]["FLOWER_BASIC_AUTH"]


@pytest.mark.parametrize("name", ["redis", *OURS])
def test_each_service_is_bounded_watched_and_comes_back(name: str) -> None:
    service = services()[name]

    assert service["deploy"]["resources"]["limits"]["memory"]
    assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", OURS)
def test_each_part_of_ours_can_write_to_its_volumes_alone(name: str) -> None:
    service = services()[name]

    assert service["read_only"] is True
    assert [one.partition(":")[0] for one in service["tmpfs"]] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["depends_on"]["redis"] == {"condition": "service_healthy"}


def test_workers_write_where_the_api_reads() -> None:
    resolved = services()

    assert f"outputs:{OUTPUTS}" in resolved["worker"]["volumes"]
    for name in ON_GPU:
        assert f"outputs:{OUTPUTS}" in resolved[name]["volumes"]
    assert resolved["clerk"]["volumes"] == [f"outputs:{OUTPUTS}"]
    assert resolved["api"]["volumes"] == [f"outputs:{OUTPUTS}:ro"]
    for name in ("api", "worker", *ON_GPU, "clerk"):
        assert str(own_settings(resolved[name]).output_dir) == OUTPUTS


@pytest.mark.parametrize("name", OURS)
def test_the_environment_of_each_part_is_made_of_settings_that_exist(name: str) -> None:
    service = services()[name]

    settings = own_settings(service)

    known = settings.to_env().keys()
    given = {variable for variable in service["environment"] if variable.startswith("VOICEMILL_")}
    assert given <= known


@pytest.mark.parametrize("stop_seconds", ["", "5", "600"])
@pytest.mark.parametrize("name", ["worker", *ON_GPU])
def test_a_worker_is_given_longer_to_stop_than_its_batches_may_take(
    name: str, stop_seconds: str
) -> None:
    service = services(VOICEMILL_STOP_SECONDS=stop_seconds)[name]

    assert own_settings(service).stop_seconds == float(stop_seconds or 30)
    assert seconds(service["stop_grace_period"]) > own_settings(service).stop_seconds + 31


@pytest.mark.parametrize(
    ("variables", "speaks"),
    [
        ({}, "worker"),
        ({"VOICEMILL_ENGINE": "piper"}, "worker"),
        ({"VOICEMILL_GPU_ENGINE": "cosyvoice"}, "worker-gpu"),
        ({"VOICEMILL_ENGINE": "piper", "VOICEMILL_GPU_ENGINE": "cosyvoice"}, "worker-gpu"),
    ],
    ids=["default", "cpu", "gpu", "both"],
)
def test_a_job_that_names_no_model_goes_to_the_engine_of_a_worker(
    variables: dict[str, str], speaks: str
) -> None:
    engines = {name: own_settings(services(**variables)[name]).engine for name in OURS[:-1]}

    assert engines["api"] == engines["clerk"] == engines[speaks]
    assert engines["worker"] == variables.get("VOICEMILL_ENGINE", "hibari")
    assert engines["worker-gpu"] == variables.get("VOICEMILL_GPU_ENGINE", "transformers")


def test_readiness_is_judged_by_one_engine_or_by_those_that_are_listed() -> None:
    assert list(own_settings(services()["api"]).pools) == ["hibari"]
    variables = {"VOICEMILL_GPU_ENGINE": "transformers", "VOICEMILL_ENGINES": "hibari,transformers"}
    api = own_settings(services(**variables)["api"])
    assert (api.engine, list(api.pools)) == ("transformers", ["hibari", "transformers"])


@pytest.mark.parametrize("name", ["worker", *ON_GPU, "clerk"])
def test_whoever_gives_up_an_item_is_told_when(name: str) -> None:
    variables = {"VOICEMILL_MAX_ATTEMPTS": "5", "VOICEMILL_LEASE_SECONDS": "20"}

    settings = own_settings(services(**variables)[name])

    assert (settings.max_attempts, settings.lease_seconds) == (5, 20.0)


@pytest.mark.parametrize("name", ["worker", *ON_GPU])
def test_the_limits_of_a_child_are_settings_of_the_env_file(name: str) -> None:
    settings = own_settings(
        services(
            VOICEMILL_MAX_TASKS_PER_CHILD="7",
            VOICEMILL_MAX_ITEMS_PER_CHILD="70",
            VOICEMILL_MAX_AGE_SECONDS="3600",
            VOICEMILL_HOST_MEMORY_LIMIT="2x",
        )[name]
    )

    assert settings.max_tasks_per_child == 7
    assert settings.max_items_per_child == 70
    assert settings.max_age_seconds == 3600.0
    assert str(settings.host_memory_limit) == "2x"


def test_what_is_not_set_is_what_the_settings_have_themselves() -> None:
    given, own = own_settings(services()["worker"]), Settings.from_env({})

    for name in (
        *("engine", "engine_options", "max_tasks_per_child", "max_items_per_child"),
        *("max_age_seconds", "host_memory_limit", "max_attempts", "lease_seconds", "stop_seconds"),
    ):
        assert getattr(given, name) == getattr(own, name), name


def test_the_gpu_worker_reserves_a_device_and_reads_models_from_a_read_only_folder() -> None:
    service = services(
        MODELS_DIR="/srv/models",
        VOICEMILL_GPU_ENGINE_OPTIONS='{"model_path": "/models/vits"}',
        VOICEMILL_GPU_MEMORY_LIMIT="10000MiB",
    )["worker-gpu"]

    assert service["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": "1", "capabilities": ["gpu"]}
    ]
    assert "/srv/models:/models:ro" in service["volumes"]
    assert service["environment"]["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert service["networks"] == ["queue"]
    settings = own_settings(service)
    assert settings.engine == "transformers"
    assert settings.engine_options == {"model_path": "/models/vits"}
    assert str(settings.gpu_memory_limit) == "10000MiB"


def test_the_worker_of_cosyvoice_finds_its_checkout_its_model_and_its_python() -> None:
    service = services(MODELS_DIR="/srv/models", COSYVOICE_MODEL="three")["worker-cosyvoice"]

    settings = own_settings(service)
    assert (settings.engine, settings.workers) == ("cosyvoice", 1)
    assert str(settings.engine_python) == "/opt/cosyvoice/bin/python"
    assert settings.engine_options == {"checkout": "/opt/CosyVoice", "model_dir": "/models/three"}
    assert "/srv/models:/models:ro" in service["volumes"]
    gpu = services()["worker-gpu"]["deploy"]["resources"]["reservations"]
    assert service["deploy"]["resources"]["reservations"] == gpu
    assert str(settings.gpu_memory_limit) == "85%"
    more = services(COSYVOICE_MORE_OPTIONS=', "trt": true')["worker-cosyvoice"]
    assert own_settings(more).engine_options["trt"] is True
    api = own_settings(services(VOICEMILL_GPU_ENGINE="cosyvoice")["api"])
    assert api.engine == settings.engine


def test_the_image_of_cosyvoice_is_of_the_commit_that_the_engine_was_written_for() -> None:
    arguments = services()["worker-cosyvoice"]["build"]["args"]

    assert arguments["COSYVOICE_COMMIT"].startswith(KNOWN_COMMIT)
    chosen = services(COSYVOICE_COMMIT="abc", COSYVOICE_PARTS="torch trt")["worker-cosyvoice"]
    assert chosen["build"]["args"] == {
        "COSYVOICE_COMMIT": "abc",
        "COSYVOICE_PARTS": "torch trt",
    }


def test_each_service_runs_what_its_image_is_for() -> None:
    commands = {name: command_of(services()[name]) for name in OURS}

    assert commands["api"][-1] == "api.wsgi:app"
    assert commands["worker"][:3] == ["celery", "--app=worker.app", "worker"]
    assert {str(commands[name]) for name in ON_GPU} == {str(commands["worker"])}
    assert commands["clerk"] == ["python", "-m", "worker.clerk"]
    assert commands["flower"][:3] == ["celery", "--app=worker.app", "flower"]
