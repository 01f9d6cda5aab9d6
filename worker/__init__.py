"""Celery processes that turn items into audio."""
