"""One file per engine; the only importers of torch and onnxruntime."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from voicemill.errors import SettingsError
from worker.engines.base import Engine
from worker.environment import forbid_telemetry

ENTRY_POINTS = "voicemill.engines"
"""The entry point group by which other packages offer engines: ``name = "module:Class"``."""

BUILT_IN = {
    "hibari": "worker.engines.hibari:HibariEngine",
    "kokoro": "worker.engines.kokoro:KokoroEngine",
    "piper": "worker.engines.piper:PiperEngine",
    "tone": "worker.engines.tone:ToneEngine",
    "transformers": "worker.engines.transformers:TransformersEngine",
}
EXTRAS = {"hibari": "hibari", "kokoro": "kokoro", "piper": "piper", "transformers": "torch"}
"""Where a built-in engine needs packages of its own: the extra that brings them."""


def load_engine(name: str) -> Engine:
    """A new engine of this name, with nothing loaded yet.

    Only its own module is imported. Raises ``SettingsError`` for a name that nothing offers, and
    for an engine whose packages are not installed.
    """
    offered = {one.name: one for one in entry_points(group=ENTRY_POINTS)}
    offered |= {own: EntryPoint(own, at, ENTRY_POINTS) for own, at in BUILT_IN.items()}
    if name not in offered:
        names = ", ".join(sorted(offered))
        raise SettingsError(
            f"There is no engine {name!r}; set VOICEMILL_ENGINE to one of: {names}."
        )
    forbid_telemetry()
    module, _, attribute = offered[name].value.partition(":")
    try:
        engine: Engine = getattr(import_module(module), attribute)()
    except ModuleNotFoundError as error:
        raise SettingsError(f"The engine {name} needs {error.name}. {remedy(name)}") from error
    return engine


def remedy(name: str) -> str:
    """What to do about an engine whose packages are missing."""
    if name in EXTRAS:
        return f"Install it with: pip install 'voicemill[{EXTRAS[name]}]'"
    return "Install what its package asks for."
