"""The application for a WSGI server.

``gunicorn --worker-class gthread --threads 32 --bind 127.0.0.1:8080 'api.wsgi:app'``
"""

from __future__ import annotations

from api.app import create_app
from voicemill.logs import configure_logging
from voicemill.settings import Settings

settings = Settings.from_env()
configure_logging(settings.log_level)
app = create_app(settings)
