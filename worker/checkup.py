"""What this machine has for a worker, as a JSON object: devices, and what the engine lacks.

``python -m worker.checkup`` reads the settings that a worker would read, and loads no model.
``{"devices": [{"uuid", "name", "total_bytes", "used_bytes"}], "reason": WHY NONE OR NULL,
"missing": [{"what", "remedy", "command"}]}``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from voicemill.errors import SettingsError
from voicemill.settings import Settings
from worker.engines import load_engine
from worker.environment import visible_devices
from worker.missing import KnowsItsNeeds, Missing
from worker.nvml import Driver
from worker.remote.interpreter import refuse_unfit


def main() -> None:
    """Look, and print it."""
    looked = devices() | {"missing": [asdict(one) for one in missing(Settings.from_env())]}
    sys.stdout.write(json.dumps(looked) + "\n")


def devices() -> dict[str, Any]:
    """What the driver shows."""
    look = Driver(visible_devices()).look()
    shown = ("uuid", "name", "total_bytes", "used_bytes")
    return {
        "devices": [{name: getattr(one, name) for name in shown} for one in look.devices],
        "reason": look.reason,
    }


def missing(settings: Settings) -> list[Missing]:
    """What the engine of these settings lacks."""
    found = []
    python = settings.engine_python
    if python is not None:
        try:
            refuse_unfit(python)
        except SettingsError as error:
            found.append(Missing.told_by(error))
    try:
        engine = load_engine(settings.engine)
    except SettingsError as error:
        # An engine may be known to its own Python alone.
        return found if python is not None else [Missing.told_by(error)]
    if isinstance(engine, KnowsItsNeeds):
        found += engine.missing(settings.engine_options, python)
    return found


if __name__ == "__main__":
    main()
