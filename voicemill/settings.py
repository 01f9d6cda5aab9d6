"""Settings: read once from ``VOICEMILL_*``, frozen, and loud about a bad value."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from voicemill.cores import usable_cores
from voicemill.errors import SettingsError
from voicemill.parsers import (
    MemoryLimit,
    parse_count,
    parse_factor,
    parse_lease,
    parse_log_level,
    parse_megabytes,
    parse_memory_limit,
    parse_optional_count,
    parse_optional_path,
    parse_optional_program,
    parse_optional_seconds,
    parse_optional_text,
    parse_options,
    parse_path,
    parse_port,
    parse_seconds,
    parse_share,
    parse_stuck,
    parse_switch,
    parse_text,
    parse_threads,
    parse_without_workers,
    plain,
)
from voicemill.pools import Pool, parse_pools

PREFIX = "VOICEMILL_"


def setting(default: str, parse: Callable[[str], Any], doc: str) -> Any:
    """A field of ``Settings``: its default as a user would write it, its parser, its meaning."""
    return field(
        default_factory=lambda: parse(default),
        metadata={"default": default, "parse": parse, "doc": doc},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be tuned. An empty variable means the default."""

    home: Path = setting(
        "~/.voicemill", parse_path, "Where `scripts/up.py` keeps state: Redis data, logs, outputs."
    )
    redis_url: str = setting(
        "redis://127.0.0.1:6379/0", parse_text, "The Redis (or Valkey) that holds all records."
    )
    redis_check: bool = setting(
        "on", parse_switch, "Start on no Redis that evicts records or has no append-only file."
    )
    host: str = setting("127.0.0.1", parse_text, "Address the API listens on.")
    port: int = setting("8080", parse_port, "Port the API listens on; 0 takes a free one.")
    workers: int = setting(
        str(usable_cores()), parse_count, "Synthesis children of one worker: one per core."
    )
    engine: str = setting(
        "hibari",
        parse_text,
        "The engine a worker has, and the one that speaks where a job names no model.",
    )
    engines: tuple[Pool, ...] = setting(
        "off",
        parse_pools,
        "All engines of a stack with several, maybe with their children (`hibari:2,tone:1`); "
        "the first speaks where a job names no model.",
    )
    engine_options: Mapping[str, Any] = setting(
        "{}", parse_options, "Options of the engine, as a JSON object."
    )
    engine_python: Path | None = setting(
        "off",
        parse_optional_program,
        "The Python that the engine runs in, in a process beside its child; or off: the worker's.",
    )
    output_dir: Path = setting(
        "~/.voicemill/outputs", parse_path, "Where audio files go; shared by workers and API."
    )
    without_workers: str = setting(
        "queue",
        parse_without_workers,
        "What becomes of a job whose model no child offers now: `queue` has it wait, `refuse` "
        "answers 503.",
    )
    threads_per_child: int | None = setting(
        "auto",
        parse_threads,
        "Threads of arithmetic of each child; auto shares the cores out among the children.",
    )
    numa: bool = setting(
        "on",
        parse_switch,
        "A child keeps to the cores beside its GPU where there are such; or off.",
    )
    batch_seconds: float = setting(
        "1", parse_seconds, "Device time one task should take; longer batches cost latency."
    )
    interactive_slots: int | None = setting(
        "1",
        parse_optional_count,
        "Slots that bulk jobs leave free, where an engine has four or more and interactive jobs "
        "come; or off.",
    )
    max_tasks_per_child: int | None = setting(
        "1000",
        parse_optional_count,
        "Recycle a child after this many tasks. A task is a batch of items.",
    )
    max_items_per_child: int | None = setting(
        "off", parse_optional_count, "Recycle a child after this many items, whatever the batches."
    )
    gpu_memory_limit: MemoryLimit | None = setting(
        "85%",
        parse_memory_limit,
        "Recycle a child over this much of one device's memory: MiB, % or x.",
    )
    host_memory_limit: MemoryLimit | None = setting(
        "4x", parse_memory_limit, "Recycle a child over this much host memory: MiB, % or x."
    )
    max_age_seconds: float | None = setting(
        "off", parse_optional_seconds, "Recycle a child this long after it was ready."
    )
    min_age_seconds: float = setting(
        "30",
        parse_seconds,
        "Least age of a child that is recycled for memory, slowness, age or schedule.",
    )
    fragmentation_limit: float | None = setting(
        "30%", parse_share, "Recycle a child that wastes this share of torch's GPU memory; or off."
    )
    fragmentation_floor_mb: int = setting(
        "1024", parse_megabytes, "Waste of GPU memory (MiB) that is borne whatever its share."
    )
    max_slowdown: float | None = setting(
        "1.5", parse_factor, "Recycle a child this many times slower than it was; or off."
    )
    max_errors: int | None = setting(
        "3", parse_optional_count, "Recycle a child whose engine fails this often in a row; or off."
    )
    recycle_at: str | None = setting(
        "off",
        parse_optional_text,
        "When to recycle every child: five cron fields and maybe a time zone "
        "(`0 2 * * * Europe/Berlin`); or off.",
    )
    cuda_alloc_conf: str | None = setting(
        "off", parse_optional_text, "PYTORCH_CUDA_ALLOC_CONF of the children; or off."
    )
    max_voices_per_child: int = setting(
        "32",
        parse_count,
        "Enrolled voices that a child has in memory; the one used longest ago makes way.",
    )
    recogniser_model: Path | None = setting(
        "off",
        parse_optional_path,
        "Folder of a faster-whisper model (extra `verify`) that hears whether prompts say what "
        "their transcripts say; or off.",
    )
    memory_check_seconds: float = setting(
        "1", parse_seconds, "Least time between two looks at memory."
    )
    empty_cache_every: int | None = setting(
        "1", parse_optional_count, "Call torch.cuda.empty_cache() after each n-th batch on CUDA."
    )
    max_attempts: int = setting("3", parse_count, "Attempts an item has before it fails for good.")
    retry_seconds: float | None = setting(
        "1",
        parse_optional_seconds,
        "Pause before a failed item is tried again; four times as long each time; or off.",
    )
    max_output_seconds: float | None = setting(
        "off", parse_optional_seconds, "Audio that an item may have; a longer one fails; or off."
    )
    max_item_seconds: float | None = setting(
        "off", parse_optional_seconds, "Device time that an item may take, or else fails; or off."
    )
    max_memory_mb: int = setting(
        "off",
        parse_megabytes,
        "Memory (MiB) that a call of the engine may take for an item: GPU memory where the child "
        "has some, else the host's; or off.",
    )
    lease_seconds: float = setting(
        "60", parse_lease, "A worker not heard of for this long has lost its items to others."
    )
    cancel_grace_seconds: float | None = setting(
        "30",
        parse_optional_seconds,
        "A child that has not let go of a stopped job's item by then is killed; or off.",
    )
    min_batch_limit_seconds: float = setting(
        "120", parse_seconds, "A batch that takes longer may be hung; its child may be killed."
    )
    max_batch_limit_seconds: float = setting(
        "3600", parse_seconds, "A batch that takes longer is hung, whatever was estimated."
    )
    load_timeout_seconds: float = setting(
        "300", parse_seconds, "Time a child has to load its engine; at least four model loads."
    )
    stop_seconds: float = setting(
        "30", parse_seconds, "Time a stopping worker has to finish the batch in hand."
    )
    stuck_seconds: float | None = setting(
        "90",
        parse_stuck,
        "A worker whose event loop hangs, or that takes no message though one waits and a child is "
        "free, leaves after so long to be started anew; or off.",
    )
    retention_seconds: float | None = setting(
        "604800",
        parse_optional_seconds,
        "How long audio and texts are kept after a job's end, where it does not say "
        "(`output_expires_after`), and Celery's results; off keeps the first for ever and the "
        "results for a week.",
    )
    sweep_seconds: float = setting(
        "3600", parse_seconds, "Age of a file that no record points to when it is removed."
    )
    free_space_floor_mb: int = setting(
        "500", parse_megabytes, "Below this much free disk (MiB) nothing new is spoken; or off."
    )
    cache_mb: int = setting(
        "off",
        parse_megabytes,
        "Audio (MiB) kept at hand so that a tenant's other jobs need not speak the same again; "
        "or off.",
    )
    require_api_key: bool = setting(
        "off", parse_switch, "Whether the API asks for a key; scripts/tenants.py makes them."
    )
    api_key: str | None = setting(
        "off", parse_optional_text, "The key that the bulk tool sends; or off."
    )
    max_queued_mb: int = setting(
        "1024", parse_megabytes, "Memory (MiB) that the texts of jobs which go on may take; or off."
    )
    max_input_characters: int = setting("100000", parse_count, "Characters one input may have.")
    flower_port: int = setting("5555", parse_port, "Port Flower listens on; 0 takes a free one.")
    url: str = setting(
        "http://127.0.0.1:8080", parse_text, "The server that the bulk tool sends its rows to."
    )
    log_level: str = setting("INFO", parse_log_level, "How much the logs say.")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
        """Read ``VOICEMILL_*``; ``overrides`` (command-line flags) win.

        Raises ``SettingsError`` naming the variable whose value can't be used.
        """
        environ = os.environ if environ is None else environ
        known = {PREFIX + one.name.upper(): one for one in fields(cls)}
        values: dict[str, Any] = {}
        for variable, one in known.items():
            text = environ.get(variable, "").strip()
            if not text:
                continue
            try:
                values[one.name] = one.metadata["parse"](text)
            except ValueError as error:
                raise SettingsError(f"{variable}={text!r} can't be used: give {error}.") from error
        values |= overrides
        if "output_dir" not in values and "home" in values:
            values["output_dir"] = values["home"] / "outputs"
        if values.get("engines"):
            values.setdefault("engine", values["engines"][0].engine)
        settings = cls(**values)
        if settings.min_batch_limit_seconds > settings.max_batch_limit_seconds:
            raise SettingsError(
                f"{PREFIX}MIN_BATCH_LIMIT_SECONDS={plain(settings.min_batch_limit_seconds)} can't "
                f"be used: give {plain(settings.max_batch_limit_seconds)} or less, which is "
                f"{PREFIX}MAX_BATCH_LIMIT_SECONDS."
            )
        if settings.engine not in settings.pools:
            raise SettingsError(
                f"{PREFIX}ENGINE={settings.engine!r} can't be used: give one of {PREFIX}ENGINES, "
                f"which are {', '.join(settings.pools)}."
            )
        return settings

    @property
    def pools(self) -> dict[str, int]:
        """Children of each engine of the stack, the first engine first."""
        pools = self.engines or (Pool(self.engine),)
        return {pool.engine: pool.children or self.workers for pool in pools}

    def to_env(self) -> dict[str, str]:
        """The environment that gives these settings again, for a child process."""
        environ = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None:
                text = "auto" if one.metadata["parse"] is parse_threads else "off"
            elif isinstance(value, bool):
                text = "on" if value else "off"
            elif isinstance(value, Mapping):
                text = json.dumps(dict(value))
            elif isinstance(value, tuple):
                text = ",".join(str(part) for part in value) or "off"
            elif one.metadata["parse"] is parse_share:
                text = f"{plain(value * 100)}%"
            elif isinstance(value, int) and not value and one.name.endswith("_mb"):
                text = "off"
            else:
                text = str(value)
            environ[PREFIX + one.name.upper()] = text
        return environ
