"""Create tenants and their api keys, list them, and revoke keys.

A key is shown once, when it is made; the store keeps a hash of it. Tenants
share each engine by their weights. Their keys count once the API runs with
VOICEMILL_REQUIRE_API_KEY=on.

exit codes:
  0  done
  1  there is no such tenant, or it has a key already
  2  the command line or a setting can't be used
  3  the store can't be reached, or takes no writes

examples:
  tenants.py create books --weight 3 --max-queued-items 200000
  tenants.py list
  tenants.py revoke books
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

# Lets it run from a checkout that is not installed; what is installed comes first.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from voicemill.errors import SettingsError, StoreRefusedError, StoreUnavailableError
from voicemill.limits import Limits
from voicemill.parsers import parse_seconds
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.tenants import TENANT_ID, Tenant, TenantRecord, new_api_key

DONE, REFUSED, UNUSABLE, NO_STORE = 0, 1, 2, 3


def main(argv: list[str] | None = None) -> int:
    """Run the tool; gives its exit code."""
    arguments = parser().parse_args(argv)
    try:
        store = Store.connect(arguments.redis_url or Settings.from_env().redis_url)
        run: Callable[[Store, argparse.Namespace], int] = arguments.run
        return run(store, arguments)
    except SettingsError as error:
        return complain(error.message, UNUSABLE)
    except (StoreUnavailableError, StoreRefusedError) as error:
        return complain(f"{error.message} Give its URL with --redis-url.", NO_STORE)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tenants.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--redis-url", help="the store (default: VOICEMILL_REDIS_URL)")
    commands = parser.add_subparsers(required=True, metavar="create|list|revoke")
    made = commands.add_parser("create", help="a tenant with a new key")
    made.add_argument("id", type=tenant_id, help="1 to 63 of a-z 0-9 _ -")
    made.add_argument("--weight", type=weight, default=1.0, help="its share, relative to others")
    for cap in ("running-items", "queued-items", "queued-characters"):
        made.add_argument(f"--max-{cap}", type=count, metavar="N", help="at once (default: any)")
    made.add_argument(
        "--max-output-seconds", type=seconds, metavar="S", help="audio of an item (default: any)"
    )
    made.add_argument("--max-item-seconds", type=seconds, metavar="S", help="device time of one")
    made.add_argument(
        "--max-memory-mb", type=count, metavar="N", help="memory (MiB) that a call for one takes"
    )
    made.set_defaults(run=create)
    commands.add_parser("list", help="every tenant and what it has").set_defaults(run=show)
    gone = commands.add_parser("revoke", help="take its key from a tenant; its jobs go on")
    gone.add_argument("id", type=tenant_id)
    gone.set_defaults(run=revoke)
    return parser


def create(store: Store, arguments: argparse.Namespace) -> int:
    """Make a tenant and print its key."""
    api_key = new_api_key()
    tenant = Tenant(
        arguments.id,
        arguments.weight,
        arguments.max_running_items,
        arguments.max_queued_items,
        arguments.max_queued_characters,
        Limits(arguments.max_output_seconds, arguments.max_item_seconds, arguments.max_memory_mb),
    )
    if not store.create_tenant(tenant, api_key):
        return complain(f"The tenant {tenant.id} has a key; revoke it first.", REFUSED)
    print(api_key)
    return DONE


def show(store: Store, arguments: argparse.Namespace) -> int:
    """Print the tenants as a table."""
    head = ("tenant", "key", "weight", "running", "queued", "characters", "an item may take")
    rows = [head, *(row_of(record) for record in store.tenants())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return DONE


def row_of(record: TenantRecord) -> tuple[str, ...]:
    """A tenant as a line: what it has of what it may have."""
    tenant, use = record.tenant, record.use
    pairs = (
        (use.running_items, tenant.max_running_items),
        (use.queued_items, tenant.max_queued_items),
        (use.queued_characters, tenant.max_queued_characters),
    )
    shares = (f"{has}" if most is None else f"{has}/{most}" for has, most in pairs)
    key, limits = "yes" if record.has_key else "no", str(tenant.limits) or "any"
    return (tenant.id, key, f"{tenant.weight:g}", *shares, limits)


def revoke(store: Store, arguments: argparse.Namespace) -> int:
    """Take a tenant's key."""
    if not store.revoke_tenant(arguments.id):
        return complain(f"There is no tenant {arguments.id} with a key.", REFUSED)
    print(f"The key of {arguments.id} is no longer valid. Its jobs go on.")
    return DONE


def tenant_id(text: str) -> str:
    """An id that can be part of the store's names."""
    if not TENANT_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 to 63 of a-z 0-9 _ -")
    return text


def weight(text: str) -> float:
    """A share above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.001 <= number <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number from 0.001 to 1000")
    return number


def count(text: str) -> int:
    """A whole number of one or more."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of 1 or more")
    return int(text)


def seconds(text: str) -> float:
    """A time that a setting may have, too."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: give {error}") from error


def complain(message: str, code: int) -> int:
    """Say on stderr what is wrong; gives the exit code."""
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
