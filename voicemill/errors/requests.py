"""What a client asked for and can't have."""

from __future__ import annotations

from voicemill.errors.base import VoicemillError


class RequestError(VoicemillError):
    """The request can't be carried out as sent."""

    code = "bad_request"
    title = "The request can't be read"
    http_status = 400


class UnauthorizedError(RequestError):
    """No api key, or one that is not known."""

    code = "unauthorized"
    title = "An api key is needed"
    http_status = 401


class JobNotFoundError(RequestError):
    """No job with this id."""

    code = "job_not_found"
    title = "No such job"
    http_status = 404


class WorkerNotFoundError(RequestError):
    """No worker or child of this id was heard of lately."""

    code = "worker_not_found"
    title = "Worker not found"
    http_status = 404


class ChildLoadingError(RequestError):
    """The child still loads its engine; it hears orders once it has."""

    code = "child_loading"
    title = "The child still loads"
    http_status = 409
    retryable = True


class RolloutNotFoundError(RequestError):
    """No rollout with this id."""

    code = "rollout_not_found"
    title = "No such rollout"
    http_status = 404


class RolloutConflictError(RequestError):
    """The rollout, or another one of the model, is not where this could be done."""

    code = "rollout_conflict"
    title = "The rollout can't do this now"
    http_status = 409


class NoWorkersError(RequestError):
    """No child offers the model now, and the server does not let such jobs wait."""

    code = "no_workers"
    title = "Nobody is there to speak"
    http_status = 503
    retryable = True


class ItemNotFoundError(RequestError):
    """The job has no item with this custom_id."""

    code = "item_not_found"
    title = "No such item"
    http_status = 404


class RouteNotFoundError(RequestError):
    """No route at this path."""

    code = "not_found"
    title = "Nothing is served here"
    http_status = 404


class MethodNotAllowedError(RequestError):
    """The path exists, the method does not."""

    code = "method_not_allowed"
    title = "The path does not take this method"
    http_status = 405


class JobActiveError(RequestError):
    """The job has not ended, and must have for this."""

    code = "job_active"
    title = "The job has not ended"
    http_status = 409
    retryable = True


class NotReadyError(RequestError):
    """The item has no audio yet."""

    code = "not_ready"
    title = "The audio is not ready yet"
    http_status = 409
    retryable = True


class NoAudioError(RequestError):
    """The item ended without audio; its record says why."""

    code = "no_audio"
    title = "The item ended without audio"
    http_status = 409


class AudioGoneError(RequestError):
    """The item succeeded and its file is no longer there."""

    code = "audio_gone"
    title = "The audio was removed"
    http_status = 410


class AudioUnreadableError(RequestError):
    """The audio is on disk, and the disk or the system does not let it be read now."""

    code = "audio_unreadable"
    title = "The audio can't be read now"
    http_status = 503
    retryable = True


class DataRemovedError(RequestError):
    """The texts of the job were kept for as long as they should be, and are gone."""

    code = "data_removed"
    title = "The job's audio and texts were removed"
    http_status = 410


class PayloadTooLargeError(RequestError):
    """More bytes or more inputs than one request may carry."""

    code = "payload_too_large"
    title = "The request is too large"
    http_status = 413


class UnsupportedMediaTypeError(RequestError):
    """The body is not application/json."""

    code = "unsupported_media_type"
    title = "The body must be application/json"
    http_status = 415


class RangeNotSatisfiableError(RequestError):
    """The Range header lies outside the audio."""

    code = "range_not_satisfiable"
    title = "The range lies outside the audio"
    http_status = 416


class QuotaExceededError(RequestError):
    """The tenant would have more waiting than it may; some of it has to be spoken first."""

    code = "quota_exceeded"
    title = "The tenant has too much waiting"
    http_status = 429
    retryable = True
