"""The application for a WSGI server.

``gunicorn --worker-class gthread --threads 32 --bind 127.0.0.1:8080 'api.wsgi:app'``
"""

from __future__ import annotations

import logging

from api.app import create_app
from voicemill.errors import SettingsError, StoreRefusedError, StoreUnavailableError
from voicemill.logs import configure_logging
from voicemill.settings import Settings
from voicemill.store import Store

logger = logging.getLogger(__name__)

EXIT_MISCONFIGURED = 4
"""Gunicorn takes it for the end of the whole server, not of one of its processes."""


def refuse_forgetful(settings: Settings) -> None:
    """Leave when Redis would lose jobs; one that is away now is for the workers to look at."""
    store = Store.connect(settings.redis_url)
    try:
        store.refuse_forgetful()
    except SettingsError as error:
        logger.critical("%s", error.message)
        raise SystemExit(EXIT_MISCONFIGURED) from error
    except (StoreUnavailableError, StoreRefusedError) as error:
        logger.warning("Redis could not be looked at: %s", error)
    finally:
        store.close()


settings = Settings.from_env()
configure_logging(settings.log_level)
if settings.redis_check:
    refuse_forgetful(settings)
app = create_app(settings)
