"""How a child leaves, without its process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import inputs
from voicemill.enrolment import EnrolledVoice
from voicemill.errors import StoreRefusedError, SynthesisError
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import SessionCounts
from worker.child import Child
from worker.engines.base import Prompt
from worker.engines.tone import ToneEngine


def make_child(url: str, folder: Path, **options: Any) -> tuple[Child, ToneEngine]:
    """A child that is ready, and its engine."""
    settings = Settings(
        redis_url=url,
        redis_check=False,
        engine="tone",
        engine_options={"leak_host_mb": 1, **options},
        output_dir=folder,
        free_space_floor_mb=0,
    )
    child = Child(settings, "c1", "node")
    engine = child._engine
    assert isinstance(engine, ToneEngine)
    return child, engine


def test_who_leaves_gives_its_memory_back_before_its_process_ends(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    child, engine = make_child(redis_url, tmp_path)
    assert len(engine._leak) == 2, "of its warm-up"
    child.leave()
    assert engine._leak == []
    assert store.snapshot().slots.get("tone", 0) == 0


def test_an_engine_that_is_poisoned_is_not_called_any_more(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    child, engine = make_child(redis_url, tmp_path)
    child._synthesizer.poisoned = True
    child.leave()
    assert len(engine._leak) == 2


def test_without_a_voice_of_its_own_an_engine_is_tried_by_an_enrolled_one(
    store: Store, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = ToneEngine.load
    monkeypatch.setattr(ToneEngine, "load", lambda *args: replace(load(*args), voices=()))
    child, engine = make_child(redis_url, tmp_path)
    assert engine._leak == [], "there is no voice to warm up with"
    tally = child._vitals.tally
    tally.note_call("job_1", [(at, SynthesisError("No luck.")) for at in range(3)])
    child._try_engine()
    assert tally.errors_in_a_row == 3, "nothing shows that it speaks"
    (tmp_path / "ann.wav").write_bytes(b"a clip")
    engine.enrol("a1", Prompt(tmp_path / "ann.wav", "Good morning.", "en"))
    ann = EnrolledVoice(tenant="t", name="ann", token="1", language="en", prompt_text="")
    child._synthesizer.voices._taken["a1"] = ann
    child._try_engine()
    assert tally.errors_in_a_row == 0
    assert len(engine._leak) == 2
    child.leave()


def test_a_child_whose_engine_fails_to_unload_leaves_all_the_same(
    store: Store, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, engine = make_child(redis_url, tmp_path)

    def fail(_engine: ToneEngine) -> None:
        raise RuntimeError("It hangs on.")

    monkeypatch.setattr(ToneEngine, "unload", fail)
    child.leave()
    assert store.snapshot().slots.get("tone", 0) == 0
    assert len(engine._leak) == 2


def test_a_child_tells_of_its_sessions_and_tells_again_what_was_not_heard(
    store: Store, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, _ = make_child(redis_url, tmp_path)
    child._leaving.set()
    (item,) = inputs("Hello.")
    with child._synthesizer.sessions.session(item):
        with monkeypatch.context() as patch:
            patch.setattr(child._store, "beat_child", refuse)
            child._say_so()
        child._say_so()
        assert store.fleet().children["c1"].sessions == SessionCounts(1, 0)
    child._say_so()
    child._say_so()
    assert store.fleet().children["c1"].sessions == SessionCounts(1, 1)
    name = "voicemill_sessions_total"
    told = {labels["event"]: value for metric, labels, value in store.metrics() if metric == name}
    assert told == {"opened": 1, "destroyed": 1}


def refuse(*_: Any, **__: Any) -> None:
    raise StoreRefusedError("Redis takes no writes.")
