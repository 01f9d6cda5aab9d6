"""Tenants: who owns jobs, what each may have, and the keys they are known by. Pure."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

from voicemill.limits import Limits

DEFAULT_TENANT: Final = "default"
"""Owner of every job while no api key is required."""
SHARED_TENANT: Final = "shared"
"""The tenant whose voices all others may speak with; whoever has its key enrols them."""
TENANT_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
BEARER: Final = re.compile(r"Bearer +([\x21-\x7e]{1,200})", re.IGNORECASE)
KEY_PREFIX: Final = "vm_"


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who owns jobs, and how much of the stack it may have; nothing is no limit."""

    id: str
    weight: float = 1.0
    """Its share of a device, relative to the others'."""
    max_running_items: int | None = None
    max_queued_items: int | None = None
    max_queued_characters: int | None = None
    limits: Limits = field(default_factory=Limits)
    """What one item may take; a job may say less."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a tenant has in the stack now."""

    running_items: int = 0
    """In batches that were let in."""
    queued_items: int = 0
    queued_characters: int = 0


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant, what it has, and whether it still has a key."""

    tenant: Tenant
    use: Use
    has_key: bool


def new_api_key() -> str:
    """A key that nobody can guess; it is shown once and kept as a hash."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hash_of(api_key: str) -> str:
    """What is kept of a key. Without salt: a key is random and long, so nothing can be guessed."""
    return hashlib.sha256(api_key.encode()).hexdigest()


def key_in(authorization: str) -> str | None:
    """The key in an ``Authorization`` header; nothing where there is none."""
    found = BEARER.fullmatch(authorization.strip())
    return found[1] if found else None
