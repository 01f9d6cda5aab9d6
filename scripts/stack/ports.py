"""Ports that stay ours from the moment they are chosen."""

from __future__ import annotations

import errno
import logging
import socket

from scripts.stack.errors import CannotStartError
from scripts.stack.home import Home

logger = logging.getLogger("up")


def reserve(host: str, port: int, flag: str = "") -> socket.socket:
    """A socket bound to ``host:port``, to be kept open while a part listens there.

    Port 0 takes a free one: ``getsockname()[1]``. On Linux a bound socket that does not listen
    lets a part listen on its port when both allow reuse, and keeps the kernel from handing the
    port to anybody else, also while the part is away. Raises ``CannotStartError``.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        holder = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotStartError(
            f"Host {host!r} can't be used: {error.strerror}; give another with --host."
        ) from error
    try:
        if port:
            # Connections of a former run that linger are no reason to refuse.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(address)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        holder.close()
        raise CannotStartError(refusal(host, port, flag, error)) from error
    return holder


def reserve_for(home: Home, part: str, host: str, port: int, flag: str = "") -> socket.socket:
    """Reserve a part's port; for 0 the free one that it had before in this home.

    So what a person has exported stays right at the next start. Raises ``CannotStartError``.
    """
    if port:
        return reserve(host, port, flag)
    kept = home.kept_port(part)
    try:
        holder = reserve(host, kept)
    except CannotStartError:
        holder = reserve(host, 0)
        logger.warning(
            "%s gets port %d: its former one, %d, is in use; correct what names it",
            part,
            port_of(holder),
            kept,
        )
    home.keep_port(part, port_of(holder))
    return holder


def refusal(host: str, port: int, flag: str, error: OSError) -> str:
    """Why the port can't be had, and what to do."""
    if error.errno == errno.EADDRNOTAVAIL:
        return f"Host {host!r} is no address of this machine; give another with --host."
    why = "is in use" if error.errno == errno.EADDRINUSE else f"can't be used: {error.strerror}"
    return f"Port {port} on {host} {why}; give another with {flag}, or 0 for a free one."


def port_of(holder: socket.socket) -> int:
    """The port a socket is bound to."""
    port: int = holder.getsockname()[1]
    return port
