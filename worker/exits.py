"""How a child that never took work ends; the supervisor reads the same of the worker."""

EXIT_NOT_LOADED = 3
EXIT_MISCONFIGURED = 4
