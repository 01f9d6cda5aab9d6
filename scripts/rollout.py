"""Change the model of running workers, or its options, without a pause; go back if it is worse.

A few children load the new revision first, while the others go on as they are.
With --promote-if-good the server decides by what both do (failures, device
time, memory); otherwise you do, with promote or rollback. A revision that can't
be loaded is rolled back by itself, and no old child leaves for it.

exit codes:
  0  done; with watch or --watch: the new revision is in use everywhere
  1  the server refused: the message says why
  2  the command line can't be used
  3  the server can't be reached
  4  with watch or --watch: the rollout was rolled back, or failed

examples:
  rollout.py start cosyvoice fp16 --options '{"fp16": true}' --percent 10
  rollout.py start hibari new --options '{}' --children 1 --promote-if-good --watch
  rollout.py list
  rollout.py promote rollout_6f2c
  rollout.py start hibari base        back to what the workers' settings say
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Lets it run from a checkout that is not installed; what is installed comes first.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from voicemill.answers import RevisionFigures, Rollout
from voicemill.client import Client, ClientError, ServerProblemError, ServerUnreachableError
from voicemill.errors import SettingsError
from voicemill.settings import Settings

DONE, REFUSED, UNUSABLE, NO_SERVER, NOT_TAKEN = 0, 1, 2, 3, 4
PATIENCE_SECONDS = 20.0
LOOK_SECONDS = 1.0
COMPLETED, ENDED = "completed", {"completed", "rolled_back", "failed"}


def main(argv: list[str] | None = None) -> int:
    """Run the tool; gives its exit code."""
    arguments = parser().parse_args(argv)
    try:
        settings = Settings.from_env()
        url, api_key = arguments.url or settings.url, arguments.api_key or settings.api_key
        with Client(url, api_key=api_key, patience_seconds=PATIENCE_SECONDS) as client:
            run: Callable[[Client, argparse.Namespace], int] = arguments.run
            return run(client, arguments)
    except SettingsError as error:
        return complain(error.message, UNUSABLE)
    except ServerProblemError as problem:
        faults = [fault.detail for fault in problem.faults]
        return complain("\n".join(faults or [problem.message]), REFUSED)
    except ServerUnreachableError as error:
        return complain(f"{error.message} Give its address with --url.", NO_SERVER)
    except ClientError as error:
        return complain(error.message, REFUSED)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="rollout.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", help="the server (default: VOICEMILL_URL)")
    parser.add_argument("--api-key", help="where it asks for one (default: VOICEMILL_API_KEY)")
    commands = parser.add_subparsers(required=True, metavar="start|list|watch|promote|rollback")
    begun = commands.add_parser("start", help="a new revision, at a few children")
    begun.add_argument("model")
    begun.add_argument("revision", help="its name; base is what the workers' settings say")
    begun.add_argument(
        "--options", type=json_object, help="of the engine, over those of the workers' settings"
    )
    canary = begun.add_mutually_exclusive_group()
    canary.add_argument("--children", type=int, metavar="N", help="that go first (default: 1)")
    canary.add_argument("--percent", type=float, metavar="P", help="of the children that go first")
    begun.add_argument(
        "--tenants", nargs="+", metavar="TENANT", help="for whom alone those children speak"
    )
    begun.add_argument("--promote-if-good", action="store_true", help="let the server decide")
    begun.add_argument("--min-attempts", type=int, metavar="N", help="before it decides")
    begun.add_argument("--watch", action="store_true", help="until the rollout has ended")
    begun.set_defaults(run=start)
    commands.add_parser("list", help="the last rollouts").set_defaults(run=show)
    for name, run, text in (
        ("watch", watch, "a rollout until it has ended"),
        ("promote", promote, "have all children change"),
        ("rollback", roll_back, "have those change back that have changed"),
    ):
        one = commands.add_parser(name, help=text)
        one.add_argument("id")
        one.set_defaults(run=run)
    return parser


def start(client: Client, arguments: argparse.Namespace) -> int:
    """Begin a rollout."""
    canary = {
        name: value
        for name in ("children", "percent", "tenants")
        if (value := getattr(arguments, name)) is not None
    }
    rule = None
    if arguments.promote_if_good or arguments.min_attempts is not None:
        rule = {} if arguments.min_attempts is None else {"min_attempts": arguments.min_attempts}
    rollout = client.start_rollout(
        arguments.model,
        arguments.revision,
        options=arguments.options,
        canary=canary or None,
        rule=rule,
    )
    print(rollout["id"])
    return follow(client, rollout["id"]) if arguments.watch else DONE


def show(client: Client, arguments: argparse.Namespace) -> int:
    """Print the rollouts, one line each."""
    for rollout in client.rollouts():
        print(f"{rollout['id']}  {line_of(rollout)}")
    return DONE


def watch(client: Client, arguments: argparse.Namespace) -> int:
    """Follow a rollout."""
    return follow(client, arguments.id)


def promote(client: Client, arguments: argparse.Namespace) -> int:
    """Decide for the new revision."""
    print(line_of(client.promote(arguments.id)))
    return DONE


def roll_back(client: Client, arguments: argparse.Namespace) -> int:
    """Decide for the old one."""
    print(line_of(client.roll_back(arguments.id)))
    return DONE


def follow(client: Client, rollout_id: str) -> int:
    """Print a line whenever something has changed, until the rollout has ended."""
    last = ""
    while True:
        rollout = client.rollout(rollout_id)
        line = line_of(rollout)
        if line != last:
            print(line, flush=True)
            last = line
        if rollout["status"] in ENDED:
            return DONE if rollout["status"] == COMPLETED else NOT_TAKEN
        time.sleep(LOOK_SECONDS)


def line_of(rollout: Rollout) -> str:
    """A rollout in one line."""
    why = f"  {rollout['reason']}" if rollout["reason"] else ""
    parts = f"{figures_of(rollout['old'])} | {figures_of(rollout['new'])}"
    return f"{rollout['model']}: {rollout['status'].replace('_', ' ')}  {parts}{why}"


def figures_of(one: RevisionFigures) -> str:
    """What a revision does."""
    factor = one["real_time_factor"]
    pace = "" if factor is None else f", {1 / factor:.1f} x real time" if factor else ""
    return (
        f"{one['revision']}: {one['children']} children, {one['attempts']} attempts, "
        f"{one['failure_share']:.1%} failed{pace}"
    )


def json_object(text: str) -> dict[str, Any]:
    """The options that a JSON object holds."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('give a JSON object such as {"fp16": true}')
    return found


def complain(message: str, code: int) -> int:
    """Say on stderr what is wrong; gives the exit code."""
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
