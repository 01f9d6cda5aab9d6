"""Celery's own settings, one a line, each with its why. Values come from ``VOICEMILL_*``."""

from voicemill.queue import queue_name
from voicemill.settings import Settings

_settings = Settings.from_env()
_limit = _settings.host_memory_limit

# One Redis holds records, messages and results.
broker_url = _settings.redis_url
# AsyncResult(task_id).get() gives the audio paths.
result_backend = _settings.redis_url
# How long it does. Redis has no room for results that stay for ever; the records do.
result_expires = int(max(1, _settings.retention_seconds or 7 * 24 * 60 * 60))
# Users read audio paths from the result backend.
task_ignore_result = False
# A child leaves after this many tasks. A task is a batch of items, so a child has
# spoken more items than tasks when it leaves; VOICEMILL_MAX_ITEMS_PER_CHILD counts those.
worker_max_tasks_per_child = _settings.max_tasks_per_child
# KiB of host memory; a soft limit of worker/recycle.py, looked at between tasks. Limits
# relative to the machine or to the warm child are kept there alone.
worker_max_memory_per_child = (
    int(_limit.value * 1024) if _limit is not None and _limit.kind == "mebibytes" else None
)
# Prefork that has a child's successor ready before the child leaves, and misses no lost child.
worker_pool = "worker.pool:TaskPool"
# CUDA contexts and OpenMP teams do not survive a fork.
worker_pool_start_method = "spawn"
# One child per core; --concurrency wins.
worker_concurrency = _settings.workers
# Nobody holds work that another could begin: dispatch admits as much as there are slots.
worker_prefetch_multiplier = 1
# The pool alone says which child is free; a successor is, while the old one is still busy.
worker_pool_putlocks = False
# A message lives until its task has ended.
task_acks_late = True
# Our leases own every further attempt; Celery retries nothing.
task_reject_on_worker_lost = False
# The same: a poison item would go round for ever.
task_retry_on_worker_lost = False
# Flower shows what runs now.
task_track_started = True
# Flower lives on events.
worker_send_task_events = True
# So that it shows tasks that were sent and not received yet.
task_send_sent_event = True
# A pickled message would run its sender's code.
accept_content = ["json"]
# What we accept is what we send.
task_serializer = "json"
# Results are read by programs in any language.
result_serializer = "json"
# A child that is still loading its engine is not dead; the limit holds for replacements too.
worker_proc_alive_timeout = _settings.load_timeout_seconds
# An hour and more, so that Celery never hands out a running task again; our reaper is faster.
visibility_timeout = int(max(14400, 2 * _settings.max_batch_limit_seconds))
broker_transport_options = {
    "visibility_timeout": visibility_timeout,
    "socket_keepalive": True,
    "health_check_interval": 25,
    # A Redis that hangs is taken for lost, and connected to anew.
    "socket_timeout": 30,
    "socket_connect_timeout": 10,
}
result_backend_transport_options = {"visibility_timeout": visibility_timeout}
# A Redis restart must not turn finished tasks into failures.
result_backend_always_retry = True
# About as long as a Redis may be away.
result_backend_max_retries = 200
# Find a broken connection before it is needed.
redis_backend_health_check_interval = 30
# Wait for Redis as long as it takes.
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
# A Redis that takes no writes is waited for too; else the first that it refuses ends the worker.
broker_channel_error_retry = True
# A lost connection is no reason to kill good work.
worker_cancel_long_running_tasks_on_connection_loss = False
# A message that comes twice after it succeeded is not run.
worker_deduplicate_successful_tasks = True
# Each engine has a queue; a worker takes its own engine's only.
task_default_queue = queue_name(_settings.engine)
# Celery sets up the logs of its processes, to standard error.
worker_hijack_root_logger = True
# Task modules, for the parent and for spawned children.
imports = ("worker.tasks",)
# Times in messages mean the same on every node.
enable_utc = True
