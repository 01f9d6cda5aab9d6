"""Voicemill: task-queue batch speech synthesis."""

__version__ = "0.1.0"
