"""What a bare install must be able to import."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "voicemill.client",
    "voicemill.bulk.errors",
    "voicemill.bulk.folder",
    "voicemill.bulk.manifest",
    "voicemill.bulk.plan",
    "voicemill.bulk.progress",
    "voicemill.bulk.report",
    "voicemill.bulk.rows",
    "voicemill.bulk.runner",
    "voicemill.bulk.speak",
    "voicemill.bulk.table",
)
NOT_IN_THE_BASE = {"redis", "celery", "kombu", "flask", "pydantic", "torch", "numpy", "soundfile"}


def test_client_and_bulk_tool_load_nothing_but_httpx_and_rich() -> None:
    code = f"import sys, {', '.join(MODULES)}; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded & NOT_IN_THE_BASE == set()
    assert {"httpx", "rich"} <= loaded
