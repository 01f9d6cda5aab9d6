"""Items over HTTP, and their audio."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.api.fleet import Fleet
from voicemill.jobs import ItemError

Post = Callable[..., dict[str, Any]]

AUDIO = bytes(range(256)) * 8
SHA256 = hashlib.sha256(AUDIO).hexdigest()


@pytest.fixture
def audio_url(post: Post, fleet: Fleet) -> str:
    """Where the audio of a finished item is."""
    job = post("Hello.")
    fleet.end({0: AUDIO})
    return f"{job['urls']['items']}/row-000001/audio"


def test_an_item_that_succeeded_says_all_of_its_audio(
    client: FlaskClient, post: Post, fleet: Fleet
) -> None:
    job = post("Hello.", metadata={"book": "x"})
    (path,) = fleet.end({0: AUDIO})

    item = client.get(f"{job['urls']['items']}/row-000001").get_json()

    assert item.pop("started_at") <= item.pop("completed_at")
    assert len(item.pop("task_id")) == 32
    assert item == {
        "object": "speech.item",
        "job_id": job["id"],
        "custom_id": "row-000001",
        "index": 0,
        "status": "succeeded",
        "attempts": 1,
        "model": "tone",
        "voice": "low",
        "audio_path": str(path),
        "audio_url": f"/v1/jobs/{job['id']}/items/row-000001/audio",
        "sha256": SHA256,
        "size_bytes": len(AUDIO),
        "duration_seconds": 1.25,
        "sample_rate": 24000,
        "response_format": "wav",
        "cached": False,
        "engine": "tone",
        "model_revision": "1",
        "error": None,
        "metadata": {},
    }


def test_an_item_that_was_not_spoken_says_so(client: FlaskClient, post: Post, fleet: Fleet) -> None:
    job = post("Hello.", "Hello.")
    fleet.end({0: AUDIO, 1: AUDIO}, cached=[1])

    items = client.get(job["urls"]["items"]).get_json()["data"]

    assert [item["cached"] for item in items] == [False, True]
    counts = client.get(f"/v1/jobs/{job['id']}").get_json()["request_counts"]
    assert (counts["completed"], counts["cached"]) == (2, 1)


def test_an_item_that_failed_says_why(client: FlaskClient, post: Post, fleet: Fleet) -> None:
    job = post("Hello.")
    fleet.end({0: ItemError("silent_audio", "It is silent.", True)})

    item = client.get(f"{job['urls']['items']}/row-000001").get_json()

    assert item["status"] == "failed"
    assert item["error"] == {"code": "silent_audio", "message": "It is silent.", "retryable": True}
    assert (item["audio_path"], item["audio_url"]) == (None, None)


def test_items_are_listed_in_order_in_pages(client: FlaskClient, post: Post) -> None:
    url = post(*(f"Text {number}." for number in range(5)))["urls"]["items"]

    first = client.get(f"{url}?limit=3").get_json()
    rest = client.get(f"{url}?limit=3&after={first['last_id']}").get_json()
    end = client.get(f"{url}?after={rest['last_id']}").get_json()

    assert [item["index"] for item in first["data"]] == [0, 1, 2]
    assert (first["has_more"], first["first_id"]) == (True, "row-000001")
    assert [item["custom_id"] for item in rest["data"]] == ["row-000004", "row-000005"]
    assert rest["has_more"] is False
    assert (end["data"], end["last_id"]) == ([], None)


def test_a_page_of_items_may_hold_a_thousand(client: FlaskClient, post: Post) -> None:
    url = post(*["Hello."] * 1001)["urls"]["items"]

    body = client.get(f"{url}?limit=1000").get_json()

    assert (len(body["data"]), body["has_more"]) == (1000, True)
    assert client.get(f"{url}?limit=1001").status_code == 422


@pytest.mark.parametrize("custom_id", ["nope", "row-000002", "row-1", "..", "%00", "é"])
def test_an_unknown_item_is_not_found(client: FlaskClient, post: Post, custom_id: str) -> None:
    url = post("Hello.")["urls"]["items"]

    for response in (
        client.get(f"{url}/{custom_id}"),
        client.get(f"{url}/{custom_id}/audio"),
        client.get(url, query_string={"after": custom_id}),
    ):
        assert response.status_code == 404


def test_audio_comes_whole_with_its_hash_and_a_name(client: FlaskClient, audio_url: str) -> None:
    response = client.get(audio_url, buffered=True)

    assert response.status_code == 200
    assert response.data == AUDIO
    assert response.headers["ETag"] == f'"{SHA256}"'
    assert response.headers["Content-Type"] == "audio/wav"
    assert response.headers["Content-Length"] == str(len(AUDIO))
    assert response.headers["Accept-Ranges"] == "bytes"
    assert response.headers["Content-Disposition"] == "inline; filename=row-000001.wav"


def test_head_gives_the_headers_alone(client: FlaskClient, audio_url: str) -> None:
    response = client.head(audio_url, buffered=True)

    assert response.headers["Content-Length"] == str(len(AUDIO))
    assert response.data == b""


@pytest.mark.parametrize(
    ("asked", "start", "stop"), [("0-9", 0, 10), ("100-", 100, None), ("-5", len(AUDIO) - 5, None)]
)
def test_a_range_gives_a_part(
    client: FlaskClient, audio_url: str, asked: str, start: int, stop: int | None
) -> None:
    response = client.get(audio_url, buffered=True, headers={"Range": f"bytes={asked}"})

    part = AUDIO[start:stop]
    assert response.status_code == 206
    assert response.data == part
    assert response.headers["Content-Range"] == (
        f"bytes {start}-{start + len(part) - 1}/{len(AUDIO)}"
    )


def test_a_range_outside_is_refused_with_the_size(client: FlaskClient, audio_url: str) -> None:
    response = client.get(audio_url, buffered=True, headers={"Range": f"bytes={len(AUDIO)}-"})

    assert response.status_code == 416
    assert response.get_json()["code"] == "range_not_satisfiable"
    assert response.headers["Content-Range"] == f"bytes */{len(AUDIO)}"


@pytest.mark.parametrize(
    "asked",
    [
        *("lines=1-2", "seconds=0-1", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-3"),
        *("bytes=0-1-2", "bytes = 0-1", "bytes=+1-2", "bytes=0-9,x", "bytes=0-9,20-29"),
        *("bytes=\u0663-", f"bytes=0-{'9' * 5000}", ""),
    ],
)
def test_a_range_that_is_not_understood_is_not_there(
    client: FlaskClient, audio_url: str, asked: str
) -> None:
    response = client.get(audio_url, buffered=True, headers={"Range": asked})

    assert (response.status_code, response.data) == (200, AUDIO)
    assert "Content-Range" not in response.headers


@pytest.mark.parametrize("asked", ["bytes=-0", "bytes=9999-", "bytes=9998-9999,9999-"])
def test_a_range_with_nothing_inside_is_refused(
    client: FlaskClient, audio_url: str, asked: str
) -> None:
    response = client.get(audio_url, buffered=True, headers={"Range": asked})

    assert response.status_code == 416
    assert response.headers["Content-Range"] == f"bytes */{len(AUDIO)}"


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=-9999", 0, len(AUDIO)),
        ("bytes=2000-9999", 2000, len(AUDIO)),
        ("BYTES=0-0", 0, 1),
        ("bytes=0-9 , 9999-", 0, 10),
    ],
)
def test_a_range_that_reaches_over_the_end_gives_what_there_is(
    client: FlaskClient, audio_url: str, asked: str, start: int, stop: int
) -> None:
    response = client.get(audio_url, buffered=True, headers={"Range": asked})

    assert (response.status_code, response.data) == (206, AUDIO[start:stop])
    assert response.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(AUDIO)}"


def test_head_knows_no_range(client: FlaskClient, audio_url: str) -> None:
    response = client.head(audio_url, buffered=True, headers={"Range": "bytes=0-9"})

    assert response.status_code == 200
    assert response.headers["Content-Length"] == str(len(AUDIO))


@pytest.mark.parametrize(
    ("wanted", "status"),
    [("*", 200), (f'"{SHA256}"', 200), (f'"a", "{SHA256}"', 200), ('"other"', 412)],
)
def test_audio_that_must_match_does_or_is_not_sent(
    client: FlaskClient, audio_url: str, wanted: str, status: int
) -> None:
    response = client.get(audio_url, buffered=True, headers={"If-Match": wanted})

    assert response.status_code == status
    assert (response.data == AUDIO) == (status == 200)
    assert (response.content_type == "application/problem+json") == (status == 412)


def test_a_known_hash_is_answered_without_a_body(client: FlaskClient, audio_url: str) -> None:
    same = client.get(audio_url, buffered=True, headers={"If-None-Match": f'"{SHA256}"'})
    other = client.get(audio_url, buffered=True, headers={"If-None-Match": '"other"'})
    stale_part = client.get(
        audio_url, buffered=True, headers={"Range": "bytes=0-9", "If-Range": '"other"'}
    )

    assert (same.status_code, same.data) == (304, b"")
    assert (other.status_code, other.data) == (200, AUDIO)
    assert (stale_part.status_code, stale_part.data) == (200, AUDIO)


def test_audio_that_is_not_there_yet_is_a_conflict_to_come_back_to(
    client: FlaskClient, post: Post
) -> None:
    response = client.get(f"{post('Hello.')['urls']['items']}/row-000001/audio")

    assert response.status_code == 409
    assert response.get_json()["code"] == "not_ready"
    assert response.headers["Retry-After"] == "1"


def test_audio_that_will_never_be_is_a_conflict(
    client: FlaskClient, post: Post, fleet: Fleet
) -> None:
    failed = post("Hello.")
    fleet.end({0: ItemError("silent_audio", "It is silent.", True)})
    cancelled = post("Hello.")
    client.post(cancelled["urls"]["cancel"])

    for job, word in ((failed, "silent_audio"), (cancelled, "cancelled")):
        response = client.get(f"{job['urls']['items']}/row-000001/audio")
        assert response.status_code == 409
        assert response.get_json()["code"] == "no_audio"
        assert word in response.get_json()["detail"]
        assert "Retry-After" not in response.headers


def turn_into_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [Path.unlink, turn_into_a_folder, empty])
def test_audio_that_is_not_there_whole_is_gone(
    client: FlaskClient, post: Post, fleet: Fleet, damage: Callable[[Path], None]
) -> None:
    job = post("Hello.")
    (path,) = fleet.end({0: AUDIO})
    assert path is not None
    damage(path)

    response = client.get(f"{job['urls']['items']}/row-000001/audio")

    assert response.status_code == 410
    assert response.get_json()["code"] == "audio_gone"


@pytest.mark.parametrize("call", ["os.stat", "werkzeug.utils.open"])
@pytest.mark.parametrize(
    "code", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EACCES]
)
def test_audio_that_can_not_be_read_now_is_not_gone(
    client: FlaskClient, audio_url: str, code: int, call: str
) -> None:
    real = os.stat

    def refused(path: Any, *args: Any, **kwargs: Any) -> Any:
        if str(path).endswith(".wav"):
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call, refused, raising=False)
        response = client.get(audio_url)

    assert (response.status_code, response.get_json()["code"]) == (503, "audio_unreadable")
    assert int(response.headers["Retry-After"]) > 0
    assert client.get(audio_url, buffered=True).data == AUDIO
