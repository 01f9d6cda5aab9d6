"""Enrolled voices in a child: taken in on first use, up to a number, and none that was deleted."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.clips import TEXT, clip
from tests.support import inputs, wait_until
from voicemill.costs import CostModel
from voicemill.enrolment import EnrolledVoice, VoiceStatus, clip_path, features_path
from voicemill.errors import VoiceExistsError
from voicemill.jobs import Item, ItemInput
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import Store
from voicemill.workers import ChildRecord
from worker.attempts import groups
from worker.engines.base import Prompt
from worker.engines.tone import ToneEngine, cloned_hz, interval
from worker.enrolling import Enroller, sweep_clips
from worker.housekeeping import Housekeeper
from worker.sharing import UnreadableError
from worker.synthesis import Synthesizer
from worker.vitals import Vitals

LINE = "A line to be spoken in a voice of somebody."


class NotingEngine(ToneEngine):
    """Remembers which voices it has."""

    def __init__(self) -> None:
        super().__init__()
        self.enrolled: list[str] = []
        self.forgotten: list[str] = []

    def enrol(self, voice: str, prompt: Prompt) -> None:
        super().enrol(voice, prompt)
        self.enrolled.append(voice)

    def forget(self, voice: str) -> None:
        super().forget(voice)
        self.forgotten.append(voice)


@dataclass
class Bench:
    """A clerk's part and a child's on one store and folder."""

    store: Store
    settings: Settings

    def __post_init__(self) -> None:
        self.engine = NotingEngine()
        capabilities = self.engine.load({})
        self.store.publish_engine(capabilities)
        storage = Storage(self.store, self.settings)
        assert storage.look() is None
        vitals = Vitals(self.settings, self.engine)
        self.synthesizer = Synthesizer(
            self.store, self.engine, capabilities, self.settings, vitals, storage
        )
        self.voices = self.synthesizer.voices
        self.enroller = Enroller(self.store, self.settings, threading.Event())
        self.housekeeper = Housekeeper(self.store, self.settings)

    def enrol(self, name: str, upload: bytes, text: str = TEXT, tenant: str = "ann") -> str:
        """Enrol a voice; gives its revision."""
        voice = EnrolledVoice(
            tenant=tenant, name=name, token=uuid.uuid4().hex, language="en", prompt_text=text
        )
        assert self.store.add_voice(voice, upload)
        assert self.enroller.tick()
        return self.voice(name, tenant).revision

    def voice(self, name: str, tenant: str = "ann") -> EnrolledVoice:
        found = self.store.voice(tenant, name)
        assert found is not None
        assert found.status is VoiceStatus.READY, found.error
        return found

    def file(self, name: str) -> Path:
        return clip_path(self.settings.output_dir, self.voice(name))

    def speak(self, *items: ItemInput, tenant: str = "ann") -> list[Item]:
        """A job of these items; gives them as they end."""
        job_id = f"job_{uuid.uuid4().hex}"
        asked = [replace(one, index=n, custom_id=f"i{n}") for n, one in enumerate(items)]
        self.store.create_job(job_id, tenant, asked, {})
        return self.run(job_id)

    def run(self, job_id: str) -> list[Item]:
        child = ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0)
        while self.store.snapshot().queued["tone"]:
            self.store.beat_child(child, 60, takes_work=True)
            for admitted in self.store.admit("tone", CostModel(0.01, 0.0), 100.0):
                task = self.store.start_task(admitted.id, "c1", 60)
                assert task is not None
                self.synthesizer.run(task)
                self.store.end_task(task, max_attempts=3)
        return self.store.items(job_id, limit=1000)

    def beat(self) -> None:
        """What each heartbeat has the child do."""
        child = ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0)
        orders = self.store.beat_child(child, 60, takes_work=True)
        self.voices.heed(orders.voice_deletions)


@pytest.fixture
def bench(store: Store, redis_url: str, tmp_path: Path) -> Bench:
    settings = Settings(
        redis_url=redis_url,
        engine="tone",
        output_dir=tmp_path / "outputs",
        free_space_floor_mb=0,
        max_voices_per_child=2,
        retry_seconds=None,
    )
    return Bench(store, settings)


def line(name: str, revision: str, text: str = LINE) -> ItemInput:
    return replace(inputs(text, voice=name)[0], voice_revision=revision)


def heard_hz(item: Item) -> float:
    """The frequency of an item's audio."""
    assert item.audio is not None, item.error
    samples, rate = soundfile.read(item.audio.audio_path)
    spectrum = np.abs(np.fft.rfft(samples, 1 << 20))
    return float(np.argmax(spectrum) * rate / (1 << 20))


def expected_hz(bench: Bench, name: str) -> float:
    text = bench.voice(name).prompt_text
    return cloned_hz(bench.file(name).read_bytes(), text) * interval(LINE)


def code_of(item: Item) -> str | None:
    return item.error and item.error.code


def test_two_voices_are_told_apart_by_what_is_heard_though_their_transcript_is_one(
    bench: Bench,
) -> None:
    first, second = bench.enrol("first", clip(hz=140)), bench.enrol("second", clip(hz=180))
    items = bench.speak(line("first", first), line("second", second), line("first", first, "Hi."))

    heard = [heard_hz(item) for item in items[:2]]
    assert heard == pytest.approx([expected_hz(bench, "first"), expected_hz(bench, "second")], 1e-3)
    assert abs(heard[0] - heard[1]) > 5
    assert sorted(bench.engine.enrolled) == sorted([first, second])


def test_two_tenants_may_have_voices_of_one_name(bench: Bench) -> None:
    mine = bench.enrol("narrator", clip(hz=140))
    theirs = bench.enrol("narrator", clip(hz=180), tenant="bob")
    (of_ann,) = bench.speak(line("narrator", mine))
    (of_bob,) = bench.speak(line("narrator", theirs), tenant="bob")
    assert abs(heard_hz(of_ann) - heard_hz(of_bob)) > 5

    (stolen,) = bench.speak(line("narrator", theirs))
    assert code_of(stolen) == "voice_not_found"


def test_voices_of_the_shared_tenant_are_everybodys(bench: Bench) -> None:
    shared = bench.enrol("narrator", clip(), tenant="shared")
    (item,) = bench.speak(line("narrator", shared))
    assert heard_hz(item) > 700


def test_the_voice_used_longest_ago_makes_way(bench: Bench) -> None:
    a, b, c = (bench.enrol(name, clip(hz=hz)) for name, hz in (("a", 140), ("b", 160), ("c", 180)))
    for name, revision in (("a", a), ("b", b), ("a", a), ("c", c), ("a", a)):
        bench.speak(line(name, revision))
    assert (bench.engine.enrolled, bench.engine.forgotten) == ([a, b, c], [b])

    (item,) = bench.speak(line("b", b))
    assert heard_hz(item) == pytest.approx(expected_hz(bench, "b"), 1e-3)
    assert bench.engine.forgotten == [b, c]


def test_a_deleted_voice_is_gone_from_record_folder_and_engine(bench: Bench) -> None:
    gone, kept = bench.enrol("gone", clip(hz=140)), bench.enrol("kept", clip(hz=180))
    bench.speak(line("gone", gone), line("kept", kept))
    bench.beat()
    file = bench.file("gone")
    assert bench.store.delete_voice("ann", "gone")
    bench.beat()
    bench.housekeeper.tick()

    assert bench.store.voice("ann", "gone") is None
    assert bench.engine.forgotten == [gone]
    assert not file.exists()
    assert bench.file("kept").exists()
    assert bench.store._redis.keys("*gone*") == []
    assert bench.store.voice_removals() == []


def test_items_that_wait_for_a_deleted_voice_fail_even_where_their_text_was_spoken(
    bench: Bench,
) -> None:
    revision = bench.enrol("gone", clip())
    items = [
        replace(one, voice_revision=revision) for one in inputs("A.", "B.", "A.", voice="gone")
    ]
    bench.store.create_job("job_1", "ann", items, {})
    bench.store.delete_voice("ann", "gone")
    ended = bench.run("job_1")
    assert [code_of(item) for item in ended] == ["voice_not_found"] * 3
    assert {item.attempts for item in ended} == {1}


def test_a_job_does_not_speak_with_another_voice_that_took_the_name(bench: Bench) -> None:
    former = bench.enrol("narrator", clip(hz=140))
    bench.store.delete_voice("ann", "narrator")
    latter = bench.enrol("narrator", clip(hz=180))
    old, new = bench.speak(line("narrator", former), line("narrator", latter))
    assert code_of(old) == "voice_not_found"
    assert heard_hz(new) == pytest.approx(expected_hz(bench, "narrator"), 1e-3)


def test_audio_of_another_voice_is_not_taken_from_the_cache(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    settings = Settings(
        redis_url=redis_url,
        engine="tone",
        output_dir=tmp_path / "outputs",
        free_space_floor_mb=0,
        cache_mb=10,
    )
    bench = Bench(store, settings)
    former = bench.enrol("narrator", clip(hz=140))
    bench.speak(line("narrator", former))
    assert bench.speak(line("narrator", former))[0].cached
    bench.store.delete_voice("ann", "narrator")
    latter = bench.enrol("narrator", clip(hz=180))
    (item,) = bench.speak(line("narrator", latter))
    assert not item.cached
    assert heard_hz(item) == pytest.approx(expected_hz(bench, "narrator"), 1e-3)


@pytest.mark.parametrize("damage", [None, b"other bytes"])
def test_a_clip_that_is_not_as_recorded_is_not_spoken_with(
    bench: Bench, damage: bytes | None
) -> None:
    revision = bench.enrol("a", clip())
    bench.file("a").unlink() if damage is None else bench.file("a").write_bytes(damage)
    (item,) = bench.speak(line("a", revision))
    assert code_of(item) == "prompt_audio_invalid"
    assert bench.engine.enrolled == []


def test_a_clip_that_can_not_be_read_now_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = bench.enrol("a", clip())

    def refused(path: Path, _: str) -> None:
        raise UnreadableError(f"{path} can't be read now: Input/output error.")

    monkeypatch.setattr("worker.voices.check", refused)
    (item,) = bench.speak(line("a", revision))
    assert code_of(item) == "synthesis_failed"
    assert bench.engine.enrolled == []
    monkeypatch.undo()
    assert [one.status for one in bench.speak(line("a", revision))] == ["succeeded"]


def test_nothing_is_forgotten_while_the_engine_speaks(bench: Bench) -> None:
    revision = bench.enrol("a", clip())
    bench.speak(line("a", revision))
    bench.beat()
    voice = bench.voice("a")
    bench.store.delete_voice("ann", "a")
    with bench.voices.speaking(line("a", revision), voice) as name:
        bench.beat()
        assert (name, bench.engine.forgotten) == (revision, [])
    bench.beat()
    assert bench.engine.forgotten == [revision]


def test_a_refused_voice_tells_why_and_makes_way_for_another(bench: Bench) -> None:
    voice = EnrolledVoice(tenant="ann", name="a", token="1", language="en", prompt_text=TEXT)
    bench.store.add_voice(voice, b"no audio")
    assert bench.enroller.tick()
    refused = bench.store.voice("ann", "a")
    assert refused is not None
    assert (refused.status, refused.error and refused.error.code) == (
        VoiceStatus.REFUSED,
        "prompt_undecodable",
    )
    assert bench.enrol("a", clip())
    assert not bench.enroller.tick()
    assert bench.store._redis.keys("*upload*") == []


def test_a_prompt_whose_reader_dies_three_times_is_refused(bench: Bench) -> None:
    voice = EnrolledVoice(tenant="ann", name="a", token="1", language="en", prompt_text=TEXT)
    bench.store.add_voice(voice, clip())
    for tries in (1, 2, 3):
        prompt = bench.store.take_prompt(60)
        assert prompt is not None
        assert prompt.tries == tries
        assert bench.store.take_prompt(60) is None
        bench.store._redis.zadd("voicemill:prompts", {"ann/a": 1.0})
    assert bench.enroller.tick()
    refused = bench.store.voice("ann", "a")
    assert refused is not None
    assert refused.error is not None
    assert refused.error.code == "prompt_undecodable"
    assert not bench.enroller.tick()


def test_a_prompt_waits_without_loss_while_its_clip_can_not_be_written(bench: Bench) -> None:
    voice = EnrolledVoice(tenant="ann", name="a", token="1", language="en", prompt_text=TEXT)
    bench.store.add_voice(voice, clip())
    away = bench.settings.output_dir.with_name("away")
    bench.settings.output_dir.rename(away)
    assert bench.enroller.tick()
    waiting = bench.store.voice("ann", "a")
    assert waiting is not None
    assert waiting.status is VoiceStatus.VALIDATING

    away.rename(bench.settings.output_dir)
    wait_until(lambda: bench.enroller.tick() and is_ready(bench, "a"), 20, "the verdict")
    assert bench.file("a").exists()


def is_ready(bench: Bench, name: str) -> bool:
    found = bench.store.voice("ann", name)
    return found is not None and found.status is VoiceStatus.READY


def test_the_same_enrolment_twice_is_one_and_another_of_its_name_is_refused(bench: Bench) -> None:
    voice = EnrolledVoice(tenant="ann", name="a", token="1", language="en", prompt_text=TEXT)
    assert bench.store.add_voice(voice, clip())
    assert not bench.store.add_voice(replace(voice, token="2"), clip())
    with pytest.raises(VoiceExistsError):
        bench.store.add_voice(replace(voice, token="3", consent="Yes."), clip())
    assert bench.enroller.tick()
    assert not bench.enroller.tick()
    assert bench.voice("a").token == "1"


def test_a_verdict_on_a_voice_that_was_deleted_meanwhile_leaves_no_file(bench: Bench) -> None:
    voice = EnrolledVoice(tenant="ann", name="a", token="1", language="en", prompt_text=TEXT)
    bench.store.add_voice(voice, clip())
    prompt = bench.store.take_prompt(60)
    assert prompt is not None
    bench.store.delete_voice("ann", "a")
    bench.enroller.end(prompt)
    assert bench.store.voice("ann", "a") is None
    assert list(bench.settings.output_dir.rglob("*.wav")) == []


def test_an_unlisted_voice_is_kept_as_long_as_its_jobs(bench: Bench) -> None:
    name = f"voice_{'a' * 32}"
    revision = bench.enrol(name, clip())
    assert bench.store.voices("ann") == []
    bench.store.keep_voices("ann", [name], "job_1")
    items = [line(name, revision)]
    bench.store.create_job("job_1", "ann", items, {})
    make_due(bench, name)
    assert bench.store.expire_voices() == 0
    assert heard_hz(bench.run("job_1")[0]) > 700

    bench.store.delete("job_1")
    make_due(bench, name)
    bench.housekeeper.tick()
    assert bench.store.voice("ann", name) is None
    assert list(bench.settings.output_dir.rglob("*.wav")) == []


def make_due(bench: Bench, name: str) -> None:
    """Have the time come to look at an unlisted voice again."""
    bench.store._redis.zadd("voicemill:unlisted_voices", {f"ann/{name}": 1.0})


def test_files_that_no_voice_has_are_swept_and_clips_are_not(bench: Bench) -> None:
    bench.enrol("a", clip())
    kept = bench.file("a")
    for name in ("0.lost.wav", ".draft.tmp"):
        (kept.parent / name).write_bytes(b"left behind")
    assert sweep_clips(bench.store, bench.settings.output_dir, 3600.0) == 0
    assert sweep_clips(bench.store, bench.settings.output_dir, -1.0) == 2
    assert list(kept.parent.iterdir()) == [kept]


def test_what_models_made_of_a_clip_stays_beside_it_and_goes_with_it(bench: Bench) -> None:
    bench.enrol("a", clip())
    bench.enrol("b", clip(hz=180))
    mine, other = bench.voice("a"), bench.voice("b")
    outputs = bench.settings.output_dir
    made = [features_path(outputs, mine, model) for model in ("one 1", "one 2", "two 1")]
    assert len(set(made)) == 3
    for path in (*made, features_path(outputs, other, "one 1")):
        path.write_bytes(b"arrays")
    assert sweep_clips(bench.store, outputs, -1.0) == 0
    bench.store.delete_voice("ann", "a")
    bench.housekeeper.tick()
    left = {bench.file("b"), features_path(outputs, other, "one 1")}
    assert set(bench.file("b").parent.iterdir()) == left


def test_one_call_speaks_in_one_voice_whatever_its_name() -> None:
    items = [line("a", revision) for revision in ("1", "1", "2")]
    assert [len(group) for group in groups(items, 8)] == [2, 1]
