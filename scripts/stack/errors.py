"""Why a stack does not run, in one line for a person."""

from __future__ import annotations

EXIT_STOPPED = 0
"""It ran, and was stopped."""
EXIT_BROKEN = 1
"""A part does not run."""
EXIT_USAGE = 2
"""It can't be started as asked: a flag, a setting, the home, a port."""


class StackError(Exception):
    """The message says what is wrong and what to do; ``exit_code`` is the command's."""

    exit_code = EXIT_BROKEN


class CannotStartError(StackError):
    """The stack can't be started as asked."""

    exit_code = EXIT_USAGE


class StopRequested(Exception):  # noqa: N818  a signal to the loop, not an error
    """Somebody asked the stack to stop."""
