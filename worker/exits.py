"""How a child that never took work ends, and a worker; the supervisor reads both."""

import signal

EXIT_NOT_LOADED = 3
EXIT_MISCONFIGURED = 4
EXIT_ENDED = 5
EXIT_STUCK = 6
EXIT_NO_MEMORY = 7

MEANINGS: dict[int | None, str] = {
    EXIT_NOT_LOADED: "its engine did not load, or did not speak",
    EXIT_MISCONFIGURED: "a setting can't be used",
    EXIT_NO_MEMORY: (
        "out_of_memory: no memory was left to load its engine in; end what else holds it, start "
        "fewer children (VOICEMILL_WORKERS), or choose a smaller model"
    ),
    EXIT_ENDED: "it did not come to its end in time",
    EXIT_STUCK: "it took no more work, and left to be started anew",
    -signal.SIGKILL: (
        "killed, maybe because VOICEMILL_LOAD_TIMEOUT_SECONDS had passed, or by the kernel, for "
        "want of memory"
    ),
}


def ending(status: int | None) -> str:
    """How a process ended, and what that means of one that was not ready."""
    meaning = MEANINGS.get(status)
    return f"ended with status {status}" + (f" ({meaning})" if meaning else "")
