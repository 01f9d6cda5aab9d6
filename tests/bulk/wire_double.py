"""A stand-in for the server's HTTP wire, for tests of the client side alone.

It speaks the JSON of the API over real sockets and makes real WAV files, but
has no queue and no engine behind it. The real stack is tried in ``tests/e2e``.
"""

from __future__ import annotations

import email
import hashlib
import io
import json
import threading
import wave
from collections import Counter, deque
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

SAMPLE_RATE = 8000
SECONDS_PER_CHARACTER = 0.01


def speech(text: str) -> bytes:
    """A WAV whose length and samples follow from the text."""
    samples = hashlib.sha256(text.encode()).digest()
    file = io.BytesIO()
    with wave.open(file, "wb") as audio:
        audio.setnchannels(1)
        audio.setsampwidth(2)
        audio.setframerate(SAMPLE_RATE)
        frames = int(len(text) * SECONDS_PER_CHARACTER * SAMPLE_RATE)
        audio.writeframes((samples * (frames * 2 // len(samples) + 1))[: frames * 2])
    return file.getvalue()


@dataclass(frozen=True)
class Answer:
    """What a request gets instead of its due."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


def problem(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    """A problem+json body."""
    return {
        "type": f"/problems/{code}",
        "title": "A problem",
        "status": status,
        "detail": detail,
        "code": code,
        **more,
    }


class WireDouble:
    """The state behind the wire; tests turn its knobs and read its counters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.voices = {"heart", "low"}
        self.prompts: list[dict[str, str]] = []
        """The fields of each prompt that was sent, the clip's as hexadecimal digits."""
        self.largest_text = 100_000
        self.largest_body = 8_000_000
        self.items_per_look = 1_000_000
        """How many items end each time a job is looked at."""
        self.item_budget = 1_000_000
        """How many more items may end at all."""
        self.damaged: set[str] = set()
        self.instead: deque[Answer] = deque()
        """Answers given to the next requests, whatever they ask."""
        self.drops = 0
        """How many of the next requests lose their connection without an answer."""
        self.lost_answers = 0
        """How many of the next answers are lost, though what was asked is done."""
        self.requests: list[str] = []
        self.authorizations: set[str | None] = set()
        self.keys: list[str] = []
        self.created: list[list[str]] = []
        """The custom_ids of each job."""
        self.fetched: Counter[str] = Counter()
        self.jobs: dict[str, list[dict[str, Any]]] = {}
        self.cancelled: set[str] = set()
        self.retried: list[str] = []
        self.lock = threading.Lock()
        self._server = WireServer(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> WireDouble:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def asked(self) -> Counter[str]:
        """How often each custom_id was asked for."""
        return Counter(custom_id for ids in self.created for custom_id in ids)

    def create(self, body: dict[str, Any], size: int) -> Answer:
        """POST /v1/jobs."""
        inputs = body["inputs"]
        if size > self.largest_body:
            detail = "The body is too large."
            return Answer(413, problem(413, "payload_too_large", detail))
        faults = []
        for index, one in enumerate(inputs):
            if one.get("voice", "heart") not in self.voices:
                pointer = f"/inputs/{index}/voice"
                detail = f"No voice {one['voice']!r}."
                faults.append({"pointer": pointer, "code": "voice_not_found", "detail": detail})
            if len(one["input"]) > self.largest_text:
                pointer = f"/inputs/{index}/input"
                detail = "The text is too long."
                faults.append({"pointer": pointer, "code": "text_too_long", "detail": detail})
        if faults:
            detail = "Some inputs can't be used."
            return Answer(422, problem(422, "invalid_input", detail, errors=faults))
        job_id = f"job_{len(self.created)}"
        self.created.append([one["custom_id"] for one in inputs])
        self.jobs[job_id] = [self.item(job_id, index, one) for index, one in enumerate(inputs)]
        return Answer(202, self.job(job_id), {"Location": f"/v1/jobs/{job_id}"})

    def enrol(self, fields: dict[str, str]) -> Answer:
        """POST /v1/voices: a clip of "bad" bytes can't be used."""
        self.prompts.append(fields)
        if bytes.fromhex(fields["prompt_audio"]) == b"bad":
            fault = {"pointer": "", "code": "prompt_silent", "detail": "The prompt is silent."}
            return Answer(422, problem(422, "invalid_input", "No.", errors=[fault]))
        name = f"voice_{hashlib.sha256(repr(fields).encode()).hexdigest()[:32]}"
        self.voices.add(name)
        enrolled = {"status": "ready", "error": None}
        return Answer(201, {"id": name, "object": "voice", "model": None, "enrolled": enrolled})

    def item(self, job_id: str, index: int, one: dict[str, Any]) -> dict[str, Any]:
        """A queued item; its text decides how it will end."""
        return {
            "object": "speech.item",
            "job_id": job_id,
            "custom_id": one["custom_id"],
            "index": index,
            "status": "queued",
            "attempts": 0,
            "audio_path": None,
            "audio_url": None,
            "sha256": None,
            "size_bytes": None,
            "duration_seconds": None,
            "sample_rate": None,
            "response_format": one.get("response_format", "wav"),
            "error": None,
            "voice": one.get("voice"),
            "_text": one["input"],
        }

    def end(self, item: dict[str, Any]) -> None:
        """Speak an item, or fail it."""
        text = item["_text"]
        if "[fail]" in text:
            item |= {
                "status": "failed",
                "attempts": 3,
                "error": {
                    "code": "synthesis_failed",
                    "message": "The engine failed.",
                    "retryable": True,
                },
            }
            return
        if "[cancel]" in text:
            item["status"] = "cancelled"
            return
        audio = speech(text)
        path = self.folder / item["job_id"] / f"{item['custom_id']}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(audio)
        item |= {
            "status": "succeeded",
            "attempts": 1,
            "audio_path": str(path),
            "audio_url": f"/v1/jobs/{item['job_id']}/items/{item['custom_id']}/audio",
            "sha256": hashlib.sha256(audio).hexdigest(),
            "size_bytes": len(audio),
            "duration_seconds": len(text) * SECONDS_PER_CHARACTER,
            "sample_rate": SAMPLE_RATE,
        }

    def look(self, job_id: str) -> dict[str, Any]:
        """GET a job: time goes on by ``items_per_look``."""
        queued = [item for item in self.jobs[job_id] if item["status"] == "queued"]
        for item in queued[: min(self.items_per_look, self.item_budget)]:
            self.end(item)
            self.item_budget -= 1
        return self.job(job_id)

    def job(self, job_id: str) -> dict[str, Any]:
        """A job as the wire tells it."""
        items = self.jobs[job_id]
        counts = Counter(item["status"] for item in items)
        over = not counts["queued"]
        return {
            "id": job_id,
            "object": "speech.job",
            "status": "cancelled" if job_id in self.cancelled else over_or_not(over),
            "run": 1,
            "status_reason": None,
            "request_counts": {"total": len(items), "completed": counts["succeeded"]},
            "usage": {},
            "metadata": {},
        }

    def page(self, job_id: str, query: dict[str, list[str]]) -> dict[str, Any]:
        """GET a job's items."""
        items = self.jobs[job_id]
        limit = int(query.get("limit", ["100"])[0])
        start = 0
        if after := query.get("after"):
            start = 1 + next(i["index"] for i in items if i["custom_id"] == after[0])
        data = items[start : start + limit]
        return {"object": "list", "data": data, "has_more": start + limit < len(items)}

    def audio(self, job_id: str, custom_id: str) -> bytes:
        """GET an item's audio."""
        item = next(item for item in self.jobs[job_id] if item["custom_id"] == custom_id)
        self.fetched[custom_id] += 1
        audio = Path(item["audio_path"]).read_bytes()
        return audio[:-1] + b"?" if custom_id in self.damaged else audio


def fields_of(content_type: str, body: bytes) -> dict[str, str]:
    """The fields of a form, files as hexadecimal digits."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    fields = {}
    for part in email.message_from_bytes(head + body).walk():
        name = part.get_param("name", header="content-disposition")
        if name:
            data = part.get_payload(decode=True)
            assert isinstance(data, bytes)
            fields[str(name)] = data.hex() if part.get_filename() else data.decode()
    return fields


def over_or_not(over: bool) -> str:
    """The status of a job nobody has cancelled."""
    return "completed" if over else "in_progress"


class WireServer(ThreadingHTTPServer):
    """A server that knows its double."""

    def __init__(self, double: WireDouble) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.double = double


class Handler(BaseHTTPRequestHandler):
    """Reads a request, and sends what the double makes of it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def do_DELETE(self) -> None:
        self.respond()

    @property
    def double(self) -> WireDouble:
        """The state behind the wire."""
        assert isinstance(self.server, WireServer)
        return self.server.double

    def respond(self) -> None:
        double = self.double
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with double.lock:
            double.requests.append(f"{self.command} {self.path}")
            double.authorizations.add(self.headers.get("Authorization"))
            if double.drops:
                double.drops -= 1
                self.close_connection = True
                return
            answer = double.instead.popleft() if double.instead else self.due(body)
            if double.lost_answers:
                double.lost_answers -= 1
                self.close_connection = True
                return
        if isinstance(answer, bytes):
            self.send(200, "audio/wav", answer, {})
            return
        if answer.status == HTTPStatus.NO_CONTENT:
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
            return
        kind = "application/json" if answer.status < 400 else "application/problem+json"
        self.send(answer.status, kind, json.dumps(answer.body).encode(), answer.headers)

    def due(self, body: bytes) -> Answer | bytes:
        double = self.double
        url = urlsplit(self.path)
        match url.path.strip("/").split("/")[1:]:
            case ["models"]:
                model = {"id": "tone", "object": "model", "revision": "1", "live": True}
                return Answer(200, {"object": "list", "data": [model]})
            case ["voices"] if self.command == "POST":
                return double.enrol(fields_of(self.headers["Content-Type"], body))
            case ["voices"]:
                names = sorted(double.voices)
                voices = [{"id": name, "object": "voice", "model": "tone"} for name in names]
                return Answer(200, {"object": "list", "data": voices, "has_more": False})
            case ["jobs"]:
                double.keys.append(self.headers["Idempotency-Key"])
                return double.create(json.loads(body), len(body))
            case ["jobs", job_id, *rest] if job_id in double.jobs:
                return self.of_job(job_id, rest, url.query)
        return Answer(404, problem(404, "job_not_found", "No such job."))

    def of_job(self, job_id: str, rest: list[str], query: str) -> Answer | bytes:
        double = self.double
        match rest:
            case [] if self.command == "DELETE":
                if "cancel=true" not in query and over_or_not(True) != double.job(job_id)["status"]:
                    return Answer(409, problem(409, "job_active", "It has not ended."))
                del double.jobs[job_id]
                return Answer(HTTPStatus.NO_CONTENT, {})
            case []:
                return Answer(200, double.look(job_id))
            case ["retry"]:
                double.retried.append(job_id)
                return Answer(202, double.job(job_id))
            case ["cancel"]:
                double.cancelled.add(job_id)
                return Answer(200, double.job(job_id))
            case ["items"]:
                return Answer(200, double.page(job_id, parse_qs(query)))
            case ["items", custom_id, "audio"]:
                return double.audio(job_id, custom_id)
        return Answer(404, problem(404, "not_found", "Nothing is served here."))

    def send(self, status: int, kind: str, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
