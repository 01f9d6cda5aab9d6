"""Persistence: the sole owner of Redis keys.

Every transition is one Lua script (``voicemill/lua``), so any number of
processes may call at once. Keys are computed inside the scripts: one Redis
(or Valkey) server, not a Cluster.
"""

from voicemill.store.durability import DurabilityStore
from voicemill.store.finalizing import FinalizingStore, Join
from voicemill.store.fleet import FleetStore
from voicemill.store.jobs import JobPage
from voicemill.store.placement import PlacementStore
from voicemill.store.removal import RemovalStore
from voicemill.store.replay import DeadLetter, DeadLetterPage, ReplayStore
from voicemill.store.rollouts import Measured, RolloutStore, measured_with
from voicemill.store.tasks import AdmittedTask, MisplacedTask, Spoken, StartedTask, TaskStore
from voicemill.store.tenants import TenantStore
from voicemill.store.voices import VoiceStore, WaitingPrompt

__all__ = [
    "AdmittedTask",
    "DeadLetter",
    "DeadLetterPage",
    "JobPage",
    "Join",
    "Measured",
    "MisplacedTask",
    "Spoken",
    "StartedTask",
    "Store",
    "WaitingPrompt",
    "measured_with",
]


class Store(
    ReplayStore,
    TaskStore,
    FinalizingStore,
    FleetStore,
    PlacementStore,
    RolloutStore,
    TenantStore,
    VoiceStore,
    RemovalStore,
    DurabilityStore,
):
    """All records of one stack.

    Every method raises ``StoreUnavailableError`` when Redis does not answer in
    time and ``StoreRefusedError`` when it takes no writes.
    """
