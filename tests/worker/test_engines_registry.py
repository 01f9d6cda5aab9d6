"""How an engine is found by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from voicemill.errors import SettingsError
from worker.engines import BUILT_IN, load_engine

IMPORTS_NOTHING_HEAVY = """
import sys
from worker.engines import load_engine
load_engine("tone")
print(sorted({"torch", "transformers", "onnxruntime", "hibari"} & set(sys.modules)))
"""

PLUGIN = """
from worker.engines.tone import ToneEngine
class Engine(ToneEngine):
    pass
"""

LOADS_A_PLUGIN = """
from worker.engines import load_engine
print(type(load_engine("brass")).__module__)
"""


TELLS_NOBODY = """
import os
from worker.engines import load_engine
load_engine("tone")
print(os.environ["ORT_DISABLE_TELEMETRY"], os.environ["HF_HUB_DISABLE_TELEMETRY"])
"""


def output_of(script: str, *path: Path) -> str:
    """What a fresh interpreter prints."""
    search = [str(Path(__file__).parents[2]), *map(str, path)]
    script = f"import sys; sys.path[:0] = {search!r}\n{script}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_finding_an_engine_imports_no_other_one() -> None:
    assert output_of(IMPORTS_NOTHING_HEAVY) == "[]"


def test_libraries_under_an_engine_are_told_to_call_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "0")
    assert output_of(TELLS_NOBODY) == "1 0", "unless something was said of it"


def test_an_engine_of_another_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "brass_engine.py").write_text(PLUGIN)
    metadata = tmp_path / "brass-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: brass\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[voicemill.engines]\nbrass = brass_engine:Engine\n")
    assert output_of(LOADS_A_PLUGIN, tmp_path) == "brass_engine"


def test_an_unknown_engine_is_refused_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match="no engine 'kazoo'") as caught:
        load_engine("kazoo")
    assert all(name in caught.value.message for name in BUILT_IN)


def test_an_engine_whose_package_is_missing_says_what_to_install(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["hibari"] = None
from voicemill.errors import SettingsError
from worker.engines import load_engine
try:
    load_engine("hibari")
except SettingsError as error:
    print(error.message)
"""
    assert "pip install 'voicemill[hibari]'" in output_of(script)
