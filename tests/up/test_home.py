"""A home: its secrets, its lock, and what stands in the way of a start."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from scripts import up
from scripts.stack import ports
from scripts.stack.errors import EXIT_USAGE, CannotStartError
from scripts.stack.home import Home, redis_config
from tests.support import free_port


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    with home.locked():
        home.prepare()
    return home


def test_secrets_are_made_once_and_are_the_owners_alone(home: Home) -> None:
    before = os.umask(0)
    try:
        url, login = home.prepare_redis(7000, 1 << 30), home.prepare_flower()
    finally:
        os.umask(before)
    for file in (home.redis_password, home.redis_config, home.flower_login):
        assert mode_of(file) == 0o600
    assert mode_of(home.redis) == 0o700
    assert home.prepare_redis(7000, 1 << 30) == url
    assert home.prepare_flower() == login
    assert home.redis_url.read_text() == f"{url}\n"
    assert len(login.partition(":")[2]) >= 20


def test_a_home_knows_the_url_of_its_own_redis(home: Home, tmp_path: Path) -> None:
    assert not home.starts_redis_at("redis://:word@127.0.0.1:7000/0")
    url = home.prepare_redis(7000, 1 << 30)
    home.keep_port("redis", 7000)
    assert home.starts_redis_at(url)
    assert not home.starts_redis_at(url.replace("7000", "7001"))
    assert not Home(tmp_path / "other").starts_redis_at(url)


def test_two_homes_have_two_passwords(tmp_path: Path) -> None:
    urls = set()
    for name in ("one", "two"):
        home = Home(tmp_path / name)
        with home.locked():
            home.prepare()
            urls.add(home.prepare_redis(7000, 1 << 30))
    assert len(urls) == 2


def test_redis_is_durable_bounded_and_on_loopback() -> None:
    lines = redis_config(Path('/a b/"c'), 7000, "word", 1024).splitlines()
    assert {
        "bind 127.0.0.1",
        "requirepass word",
        "appendonly yes",
        "appendfsync always",
        "maxmemory 1024",
        "maxmemory-policy noeviction",
        'dir "/a b/\\"c"',
    } <= set(lines)


def test_a_home_is_held_by_one_until_it_is_let_go(home: Home) -> None:
    with (
        home.locked(),
        pytest.raises(CannotStartError, match="Another stack runs in"),
        home.locked(),
    ):
        pass
    with home.locked():
        pass


def test_the_pids_are_there_while_the_stack_runs(home: Home) -> None:
    home.write_pids({"api": 12})
    assert home.pids.read_text() == '{"api": 12}\n'
    home.forget_run()
    assert not home.pids.exists()


def test_a_port_that_is_reserved_can_be_listened_on_by_a_part_and_taken_by_nobody() -> None:
    with ports.reserve("127.0.0.1", 0) as holder:
        port = ports.port_of(holder)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with (
            socket.create_server(("127.0.0.1", port)) as part,
            socket.create_connection(("127.0.0.1", port), 5),
        ):
            part.accept()[0].close()


def reserved(home: Home, part: str, port: int = 0) -> int:
    with ports.reserve_for(home, part, "127.0.0.1", port) as holder:
        return ports.port_of(holder)


def test_a_free_port_is_the_same_at_the_next_start_of_its_home(home: Home) -> None:
    first = {part: reserved(home, part) for part in ("redis", "api")}
    assert {part: reserved(Home(home.path), part) for part in first} == first


def test_a_kept_port_that_somebody_else_has_now_is_replaced_and_said(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    kept = reserved(home, "redis")
    with socket.create_server(("127.0.0.1", kept)):
        fresh = reserved(home, "redis")
    assert fresh != kept
    assert caplog.messages == [
        f"redis gets port {fresh}: its former one, {kept}, is in use; correct what names it"
    ]
    assert reserved(home, "redis") == fresh


def test_a_port_that_is_asked_for_is_not_the_one_that_is_kept(home: Home) -> None:
    kept, asked = reserved(home, "api"), free_port()
    assert reserved(home, "api", asked) == asked
    assert reserved(home, "api") == kept


@pytest.mark.parametrize("text", ["", "{", '{"api": 1'])
def test_a_list_of_ports_that_cannot_be_read_is_written_anew(home: Home, text: str) -> None:
    home.ports.write_text(text)
    kept = reserved(home, "api")
    assert reserved(home, "api") == kept


def refusal(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """The one line that the command ends with."""
    assert up.main(flags) == EXIT_USAGE
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err


@pytest.mark.parametrize("flag", ["--port", "--flower-port"])
def test_a_port_in_use_is_named_with_the_flag_that_changes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    free = {"--port": "0", "--flower-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        flags = [part for pair in {**free, flag: str(port)}.items() for part in pair]
        line = refusal(capsys, "--home", str(tmp_path / "home"), *flags)
    assert line == (
        f"Port {port} on 127.0.0.1 is in use; give another with {flag}, or 0 for a free one.\n"
    )


def test_a_host_that_is_not_ours_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal(capsys, "--home", str(tmp_path), "--port", "0", "--host", "192.0.2.1")
    assert line == ("Host '192.0.2.1' is no address of this machine; give another with --host.\n")


def test_a_home_under_a_file_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    line = refusal(capsys, "--home", str(tmp_path / "file" / "home"))
    assert "file/home can't be written: Not a directory; give another home with --home." in line


def test_a_home_that_runs_already_is_refused(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with home.locked():
        assert "Another stack runs in" in refusal(capsys, "--home", str(home.path))


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("workers", "many", "a whole number of 1 or more"),
        ("engine-options", "nope", 'a JSON object such as {"load_seconds": 3}'),
        ("engine-options", "[1]", 'a JSON object such as {"load_seconds": 3}'),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_what_is_wanted(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    wanted: str,
) -> None:
    with pytest.raises(SystemExit) as caught:
        up.main([f"--{name}", text])
    assert caught.value.code == EXIT_USAGE
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(f"argument --{name}: {text!r} can't be used: give {wanted}")

    variable = f"VOICEMILL_{name.replace('-', '_').upper()}"
    monkeypatch.setenv(variable, text)
    line = refusal(capsys, "--home", str(tmp_path))
    assert line == f"{variable}={text!r} can't be used: give {wanted}.\n"


@pytest.mark.full
def test_a_redis_of_the_users_that_does_not_answer_is_no_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICEMILL_REDIS_URL", "redis://:very-secret@127.0.0.1:1/0")
    line = refusal(capsys, "--home", str(tmp_path / "home"), "--port", "0", "--flower-port", "0")
    assert line.startswith("The Redis that VOICEMILL_REDIS_URL names does not answer; ")
    assert "very-secret" not in line


def test_help_ends_in_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        up.main(["--help"])
    assert caught.value.code == 0
    _, _, end = capsys.readouterr().out.partition("examples:\n")
    assert end.count("scripts/up.py") >= 5
    assert "exit codes:" in end
