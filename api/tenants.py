"""Whose request it is."""

from __future__ import annotations

from flask import Flask, g, request

from api.context import context
from voicemill.errors import UnauthorizedError
from voicemill.tenants import DEFAULT_TENANT, key_in

PROTECTED = "/v1/"
"""Paths below it need a key, where keys are required; health, metrics and docs need none."""


def register(app: Flask) -> None:
    """Have the tenant known before any view runs."""
    app.before_request(identify)


def identify() -> None:
    """Find the tenant of the key; raises ``UnauthorizedError``."""
    here = context()
    if not here.settings.require_api_key or not request.path.startswith(PROTECTED):
        g.tenant = DEFAULT_TENANT
        return
    api_key = key_in(request.headers.get("Authorization", ""))
    if api_key is None:
        raise UnauthorizedError("Send the header 'Authorization: Bearer' with your api key.")
    tenant = here.store.tenant_of(api_key)
    if tenant is None:
        raise UnauthorizedError("The api key is not known, or it was revoked.")
    g.tenant = tenant


def current_tenant() -> str:
    """The tenant whose request this is."""
    tenant: str = g.tenant
    return tenant
