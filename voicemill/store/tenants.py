"""Tenants, their keys, and what they have in the stack."""

from __future__ import annotations

import json
from dataclasses import fields

from voicemill.limits import Limits
from voicemill.store.connection import Connection, key, translated
from voicemill.tenants import Tenant, TenantRecord, Use, hash_of

CAPS = ("max_running_items", "max_queued_items", "max_queued_characters")


class TenantStore(Connection):
    """Keeps who may submit, and how much."""

    def create_tenant(self, tenant: Tenant, api_key: str) -> bool:
        """Keep a tenant and its key; False when it has a key already."""
        caps = ["" if getattr(tenant, cap) is None else getattr(tenant, cap) for cap in CAPS]
        kept = (tenant.weight, *caps, json.dumps(tenant.limits.to_record()))
        return bool(self.run("create_tenant", tenant.id, hash_of(api_key), *kept))

    def revoke_tenant(self, tenant_id: str) -> bool:
        """Take a tenant's key from it; its jobs go on. False when it has none."""
        return bool(self.run("revoke_tenant", tenant_id))

    def tenant_of(self, api_key: str) -> str | None:
        """The tenant that has this key."""
        with translated():
            found = self._redis.hget(key("api_keys"), hash_of(api_key))
        return found.decode() if found else None

    def tenants(self) -> list[TenantRecord]:
        """Every tenant that was ever created, by id."""
        with translated():
            ids = sorted(name.decode() for name in self._redis.smembers(key("tenants")))
            pipeline = self._redis.pipeline(transaction=False)
            for tenant_id in ids:
                pipeline.hgetall(key("tenant", tenant_id))
                pipeline.hgetall(key("use", tenant_id))
            answers = iter(pipeline.execute())
        return [
            read_tenant(tenant_id, record, use)
            for tenant_id, record, use in zip(ids, answers, answers, strict=True)
        ]


def read_tenant(
    tenant_id: str, record: dict[bytes, bytes], use: dict[bytes, bytes]
) -> TenantRecord:
    """A tenant from the hashes that hold it."""
    caps = {cap: int(record[cap.encode()]) for cap in CAPS if record[cap.encode()]}
    now = {one.name: int(use.get(one.name.encode(), 0)) for one in fields(Use)}
    limits = Limits.from_record(json.loads(record.get(b"limits", b"{}")))
    tenant = Tenant(tenant_id, float(record[b"weight"]), **caps, limits=limits)
    return TenantRecord(tenant, Use(**now), has_key=bool(record.get(b"key")))
