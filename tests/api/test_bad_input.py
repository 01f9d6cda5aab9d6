"""Everything that a client can get wrong in a submission."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient

from api.requests import MAX_BODY_BYTES, MAX_FAULTS, MAX_INPUTS
from api.submission import Submission
from tests.support import TONE
from voicemill.errors import InvalidInputError
from voicemill.options import Option
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.voices import Capabilities, Voice

MUTE = Capabilities(
    engine="mute", model_revision="1", sample_rate=8000, voices=(Voice("only", ("de-DE",)),)
)
ONE = [{"input": "Hello."}]


def faults_of(body: Any) -> list[tuple[str, str]]:
    """Pairs of pointer and code for a body, in order."""
    submission = Submission({"tone": TONE, "mute": MUTE}, Settings(engine="tone"))
    with pytest.raises(InvalidInputError) as caught:
        submission.read(body)
    return [(fault.pointer, fault.code) for fault in caught.value.faults]


@pytest.mark.parametrize("body", [None, [], [1], "text", 5, 5.5, True])
def test_json_that_is_no_object_is_pointed_at_as_a_whole(body: Any) -> None:
    assert faults_of(body) == [("", "invalid_value")]


@pytest.mark.parametrize("inputs", [[], None, {}, "Hello.", 1])
def test_inputs_must_be_a_list_that_holds_something(inputs: Any) -> None:
    assert faults_of({"inputs": inputs}) == [("/inputs", "invalid_value")]


def test_inputs_must_be_there() -> None:
    assert faults_of({}) == [("/inputs", "missing_field")]


@pytest.mark.parametrize("one", [None, [], "Hello.", 1, True])
def test_an_input_must_be_an_object(one: Any) -> None:
    assert faults_of({"inputs": [{"input": "Hello."}, one]}) == [("/inputs/1", "invalid_value")]


@pytest.mark.parametrize("text", [None, 1, True, ["a"], {"a": 1}])
def test_a_text_must_be_a_string(text: Any) -> None:
    assert faults_of({"inputs": [{"input": text}]}) == [("/inputs/0/input", "invalid_value")]


@pytest.mark.parametrize(
    "text",
    ["", " ", " \t\r\n\u3000\u00a0", "...", "！？。，、……——", "\u200b\ufeff\u00ad", "🙂", "\x00"],
)
def test_a_text_without_letter_or_digit_has_nothing_to_speak(text: str) -> None:
    assert faults_of({"inputs": [{"input": text}]}) == [("/inputs/0/input", "no_speakable_text")]


@pytest.mark.parametrize("text", ["A", "7", "Hi", "?a", "x ", "日", "\U0001f642 ok"])
def test_one_letter_or_digit_is_enough(text: str) -> None:
    items, _ = Submission({"tone": TONE}, Settings(engine="tone")).read(
        {"inputs": [{"input": text}]}
    )

    assert items[0].text == text


@pytest.mark.parametrize("text", ["Hi \ud83d there", "\udc00"])
def test_a_lone_surrogate_is_no_text(text: str) -> None:
    assert faults_of({"inputs": [{"input": text}]}) == [("/inputs/0/input", "invalid_text")]


def test_lone_surrogates_are_found_wherever_text_may_stand() -> None:
    body = {
        "metadata": {"k": "\ud800"},
        "\ud800": 1,
        "inputs": [{"input": "Hi.", "custom_id": "\ud800", "metadata": {"\ud800": "v"}}],
    }
    faults = sorted(faults_of(body))
    for pointer, _ in faults:
        pointer.encode()
    assert [("/".join(pointer.split("/")[:4]), code) for pointer, code in faults] == [
        ("/\\ud800", "unknown_field"),
        ("/inputs/0/custom_id", "invalid_custom_id"),
        ("/inputs/0/metadata", "invalid_text"),
        ("/metadata/k", "invalid_text"),
    ]


def test_a_text_may_have_as_many_characters_as_the_setting_says() -> None:
    settings = Settings(engine="tone", max_input_characters=100_000)
    Submission({"tone": TONE}, settings).read({"inputs": [{"input": "a" * 100_000}]})

    assert faults_of({"inputs": [{"input": "a" * 100_001}]}) == [
        ("/inputs/0/input", "text_too_long")
    ]


def test_a_missing_text_and_unknown_fields_are_named() -> None:
    body = {"inputs": [{"text": "Hello."}], "pitch": 3, "a/b~c": 1}

    assert sorted(faults_of(body)) == [
        ("/a~1b~0c", "unknown_field"),
        ("/inputs/0/input", "missing_field"),
        ("/inputs/0/text", "unknown_field"),
        ("/pitch", "unknown_field"),
    ]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("speed", "fast", "invalid_value"),
        ("speed", "1.0", "invalid_value"),
        ("speed", True, "invalid_value"),
        ("speed", 0, "invalid_value"),
        ("speed", -1, "invalid_value"),
        ("speed", 0.24, "invalid_value"),
        ("speed", 4.01, "invalid_value"),
        ("speed", float("nan"), "invalid_value"),
        ("speed", float("inf"), "invalid_value"),
        ("seed", True, "invalid_value"),
        ("seed", 1.0, "invalid_value"),
        ("seed", -1, "invalid_value"),
        ("seed", 10**30, "invalid_value"),
        ("seed", "7", "invalid_value"),
        ("voice", "", "invalid_value"),
        ("voice", 3, "invalid_value"),
        ("voice", "nope", "voice_not_found"),
        ("voice", "../../etc/passwd", "voice_not_found"),
        ("model", "", "invalid_value"),
        ("model", ["tone"], "invalid_value"),
        ("model", "nope", "model_not_found"),
        ("language", "", "invalid_value"),
        ("language", "en_GB", "invalid_value"),
        ("language", "fr", "unsupported_feature"),
        ("instructions", "", "invalid_value"),
        ("instructions", "\udc00", "invalid_text"),
        ("instructions", "Whisper.", "unsupported_feature"),
        ("response_format", "aac", "unsupported_feature"),
        ("response_format", 3, "invalid_value"),
        ("metadata", [], "invalid_value"),
        ("metadata", {str(key): "v" for key in range(17)}, "invalid_value"),
    ],
)
def test_a_field_that_cannot_be_used_is_pointed_at_where_it_was_given(
    field: str, value: Any, code: str
) -> None:
    assert faults_of({"inputs": [{"input": "Hello.", field: value}]}) == [
        (f"/inputs/0/{field}", code)
    ]
    assert faults_of({"inputs": ONE * 2, field: value}) == [(f"/{field}", code)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("class", "urgent"),
        ("class", 1),
        ("priority", 3),
        ("priority", -3),
        ("priority", 1.0),
        ("priority", None),
        ("fairness_key", ""),
        ("fairness_key", "a:b"),
        ("fairness_key", "x" * 65),
    ],
)
def test_a_job_can_not_stand_anywhere_else(field: str, value: Any) -> None:
    assert faults_of({"inputs": ONE, field: value}) == [(f"/{field}", "invalid_value")]
    assert faults_of({"inputs": [{**ONE[0], field: value}]}) == [
        (f"/inputs/0/{field}", "unknown_field")
    ]


def test_of_a_job_with_a_fault_the_rest_is_still_read() -> None:
    body = {"inputs": ONE, "class": "bulk", "priority": 3, "fairness_key": "a:b", "voice": "no"}
    assert faults_of(body) == [
        ("/priority", "invalid_value"),
        ("/fairness_key", "invalid_value"),
        ("/voice", "voice_not_found"),
    ]


@pytest.mark.parametrize("speed", [0.25, 1, 4.0])
def test_the_ends_of_the_range_of_speed_are_in_it(speed: float) -> None:
    body = {"inputs": ONE, "speed": speed}
    items, _ = Submission({"tone": TONE}, Settings(engine="tone")).read(body)

    assert items[0].speed == speed


def test_metadata_is_pairs_of_text() -> None:
    body = {"inputs": ONE, "metadata": {"a/b": 3, "k" * 65: "v", "w": "v" * 513}}

    assert [pointer for pointer, _ in faults_of(body)] == [
        "/metadata/a~1b",
        f"/metadata/{'k' * 65}",
        "/metadata/w",
    ]


@pytest.mark.parametrize(
    "custom_id",
    ["", "../x", "a/b", "a\\b", ".hidden", "a b", "é", "a\x00", "a\n", "x" * 65, "CON:"],
)
def test_a_custom_id_must_be_fit_for_a_file_name(custom_id: str) -> None:
    assert faults_of({"inputs": [{"input": "Hello.", "custom_id": custom_id}]}) == [
        ("/inputs/0/custom_id", "invalid_custom_id")
    ]


def test_a_custom_id_must_be_a_string() -> None:
    assert faults_of({"inputs": [{"input": "Hello.", "custom_id": 7}]}) == [
        ("/inputs/0/custom_id", "invalid_value")
    ]


def test_a_custom_id_is_used_once_also_where_it_was_given_by_us() -> None:
    named = [{"input": "A", "custom_id": "a"}, {"input": "B"}, {"input": "C", "custom_id": "a"}]
    clash = [{"input": "A", "custom_id": "row-000002"}, {"input": "B"}]

    assert faults_of({"inputs": named}) == [("/inputs/2/custom_id", "duplicate_custom_id")]
    assert faults_of({"inputs": clash}) == [("/inputs/1/custom_id", "duplicate_custom_id")]


def test_what_an_engine_cannot_do_is_refused_by_field() -> None:
    body = {
        "model": "mute",
        "speed": 2.0,
        "inputs": [{"input": "Hallo.", "seed": 1, "instructions": "Sing.", "language": "en"}] * 1,
    }
    assert sorted(faults_of(body)) == [
        ("/inputs/0/instructions", "unsupported_feature"),
        ("/inputs/0/language", "unsupported_feature"),
        ("/inputs/0/seed", "unsupported_feature"),
        ("/speed", "unsupported_feature"),
    ]


def test_options_that_the_engine_does_not_take_are_refused_one_by_one() -> None:
    able = replace(TONE, options=(Option("mood", "choice", choices=("glad", "sad")),))
    submission = Submission({"tone": able}, Settings(engine="tone"))
    body = {
        "options": {"mood": "cross"},
        "inputs": [
            {"input": "One."},
            {"input": "Two.", "options": {"mood": "sad"}},
            {"input": "Three.", "options": {"mood": True, "pace": 2}},
        ],
    }
    with pytest.raises(InvalidInputError) as caught:
        submission.read(body)
    assert [(fault.pointer, fault.code) for fault in caught.value.faults] == [
        ("/options/mood", "invalid_value"),
        ("/inputs/2/options/mood", "invalid_value"),
        ("/inputs/2/options/pace", "unsupported_feature"),
    ]


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ("glad", "/inputs/0/options"),
        ({"Mood": "glad"}, "/inputs/0/options/Mood"),
        ({"a/b": 1}, "/inputs/0/options/a~1b"),
        ({f"option_{n}": 1 for n in range(33)}, "/inputs/0/options"),
    ],
)
def test_options_are_a_short_object_with_plain_names(options: Any, pointer: str) -> None:
    assert faults_of({"inputs": [{"input": "Hi.", "options": options}]}) == [
        (pointer, "invalid_value")
    ]


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, "\ud800", "x" * 4097])
def test_an_option_is_set_to_one_plain_value(value: Any) -> None:
    found = faults_of({"inputs": [{"input": "Hi.", "options": {"mood": value}}]})
    assert {pointer.partition("/options/")[2].split("/")[0] for pointer, _ in found} == {"mood"}


def test_a_default_model_that_was_never_offered_is_named() -> None:
    submission = Submission({}, Settings(engine="hibari"))

    with pytest.raises(InvalidInputError) as caught:
        submission.read({"inputs": ONE})
    assert [(fault.pointer, fault.code) for fault in caught.value.faults] == [
        ("/model", "model_not_found")
    ]
    assert "hibari" in caught.value.faults[0].detail


def test_all_that_is_wrong_is_said_at_once() -> None:
    body = {
        "pitch": 1,
        "voice": "nope",
        "inputs": [
            {"input": "...", "speed": "fast", "voice": "also-nope", "custom_id": "a/b"},
            {"input": "Fine."},
            7,
            {"input": 3, "model": "nope"},
        ],
    }
    assert sorted(faults_of(body)) == [
        ("/inputs/0/custom_id", "invalid_custom_id"),
        ("/inputs/0/input", "no_speakable_text"),
        ("/inputs/0/speed", "invalid_value"),
        ("/inputs/0/voice", "voice_not_found"),
        ("/inputs/2", "invalid_value"),
        ("/inputs/3/input", "invalid_value"),
        ("/inputs/3/model", "model_not_found"),
        ("/pitch", "unknown_field"),
        ("/voice", "voice_not_found"),
    ]


def test_over_the_most_faults_each_wrong_input_is_told_of_once() -> None:
    wrong = {str(number): 1 for number in range(99)} | {"input": "Hello."}

    faults = faults_of({"inputs": [wrong] * 150})

    last = MAX_FAULTS // 99
    assert len(faults) == MAX_FAULTS + 150 - last - 1
    assert {pointer.split("/")[2] for pointer, _ in faults} == set(map(str, range(150)))
    assert [pointer.split("/")[2] for pointer, _ in faults].count("149") == 1


def test_a_model_that_cannot_be_read_does_not_blame_the_fields_beside_it() -> None:
    body = {"model": 3, "voice": "only", "inputs": [{"input": "Hallo."}]}

    assert faults_of(body) == [("/model", "invalid_value")]


def test_a_refused_job_leaves_nothing_behind(client: FlaskClient, store: Store) -> None:
    response = client.post("/v1/jobs", json={"inputs": [{"input": "Hello."}, {"input": "..."}]})

    assert response.status_code == 422
    assert store.jobs("default").jobs == []
    assert store.snapshot().queued == {"tone": 0}


def test_one_fault_is_the_detail_of_the_problem(client: FlaskClient) -> None:
    body = client.post("/v1/jobs", json={"inputs": [{"input": "..."}]}).get_json()

    assert body["code"] == "invalid_input"
    assert body["detail"] == body["errors"][0]["detail"] == "The text has no letter and no digit."
    assert body["errors"][0]["pointer"] == "/inputs/0/input"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"inputs": [{"input": "a',
        b"not json",
        b'{"inputs": [{"input": "\xed\xa0\xbd"}]}',
        b"\xff\xfe{\x00}\x00",
        b'{"inputs": [], "inputs": []}',
        json.dumps({"inputs": [{"metadata": dict.fromkeys(map(str, range(101)), "v")}]}).encode(),
        b"[" * 100_000,
        b'{"seed": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_body_that_is_no_json_is_a_bad_request(client: FlaskClient, body: bytes) -> None:
    response = client.post("/v1/jobs", data=body, content_type="application/json")

    assert response.status_code == 400
    assert response.get_json()["code"] == "bad_request"


def test_a_byte_order_mark_is_no_fault(client: FlaskClient) -> None:
    body = b"\xef\xbb\xbf" + json.dumps({"inputs": ONE}).encode()
    response = client.post("/v1/jobs", data=body, content_type="application/json")

    assert response.status_code == 202


@pytest.mark.parametrize("depth", [500, 1000, 5000, 100_000])
@pytest.mark.parametrize(("left", "right"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_refused_at_any_depth(
    client: FlaskClient, left: bytes, right: bytes, depth: int
) -> None:
    body = b'{"metadata":' + left * depth + b"1" + right * depth + b',"inputs":[{"input":"a"}]}'
    response = client.post("/v1/jobs", data=body, content_type="application/json")

    assert response.status_code in {400, 422}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_pointed_at(client: FlaskClient, number: str) -> None:
    body = f'{{"speed": {number}, "inputs": [{{"input": "Hello."}}]}}'
    response = client.post("/v1/jobs", data=body, content_type="application/json")

    assert response.status_code == 422
    assert response.get_json()["errors"][0]["pointer"] == "/speed"


def test_escaped_surrogates_are_read_as_what_they_are(client: FlaskClient, store: Store) -> None:
    lone = rb'{"inputs": [{"input": "Hi \ud83d there"}]}'
    pair = rb'{"inputs": [{"input": "Hi \ud83d\ude00 there"}]}'

    refused = client.post("/v1/jobs", data=lone, content_type="application/json")
    taken = client.post("/v1/jobs", data=pair, content_type="application/json")

    assert refused.get_json()["errors"][0]["code"] == "invalid_text"
    assert store.items(taken.get_json()["id"])[0].input.text == "Hi \U0001f600 there"


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_only_json_is_read(client: FlaskClient, content_type: str | None) -> None:
    response = client.post("/v1/jobs", data=json.dumps({"inputs": ONE}), content_type=content_type)

    assert response.status_code == 415
    assert response.get_json()["code"] == "unsupported_media_type"


def test_a_compressed_body_is_not_read(client: FlaskClient) -> None:
    response = client.post(
        "/v1/jobs",
        data=b"\x1f\x8b garbage",
        content_type="application/json",
        headers={"Content-Encoding": "gzip"},
    )
    assert response.status_code == 415


def test_too_many_inputs_are_too_large(client: FlaskClient) -> None:
    response = client.post("/v1/jobs", json={"inputs": ONE * (MAX_INPUTS + 1)})

    assert response.status_code == 413
    assert "10000" in response.get_json()["detail"]


def test_too_many_bytes_are_too_large(client: FlaskClient) -> None:
    body = b'{"inputs": [{"input": "' + b"a" * MAX_BODY_BYTES + b'"}]}'
    response = client.post("/v1/jobs", data=body, content_type="application/json")

    assert response.status_code == 413
    assert response.get_json()["code"] == "payload_too_large"


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=-1", "limit=101", "limit=x", "limit=", "limit=1.5", "limt=5"),
        *("limit=" + "9" * 5000, "limit=1&limit=1", "after=a&b=c"),
    ],
)
def test_a_query_that_cannot_be_used_is_refused_by_name(client: FlaskClient, query: str) -> None:
    response = client.get(f"/v1/jobs?{query}")

    fault = response.get_json()["errors"][0]
    assert response.status_code == 422
    assert fault["pointer"] == ""
    assert any(name in fault["detail"] for name in ("limit", "limt", "'b'"))


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "inf", "soon"])
def test_a_wait_that_cannot_be_is_refused(client: FlaskClient, wait: str) -> None:
    assert client.get(f"/v1/jobs/job_1?wait={wait}").status_code == 422
