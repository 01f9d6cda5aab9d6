-- ARGV: job, tenant, metadata (JSON), engines (JSON), class, priority, fairness key
local job = ARGV[1]
if redis.call('EXISTS', job_key(job)) == 1 then return redis.error_reply('JOBEXISTS') end
local seq = redis.call('INCR', P .. 'seq')
redis.call('HSET', job_key(job),
  'schema', 1, 'id', job, 'tenant', ARGV[2], 'seq', seq, 'status', 'validating', 'created_at', stamp(),
  'total', 0, 'queued', 0, 'in_progress', 0, 'succeeded', 0, 'failed', 0, 'cancelled', 0, 'expired', 0,
  'cached', 0, 'input_characters', 0, 'done_characters', 0, 'audio_seconds', 0, 'device_seconds', 0,
  'metadata', ARGV[3], 'engines', ARGV[4], 'class', ARGV[5], 'priority', ARGV[6], 'fairness_key', ARGV[7])
redis.call('ZADD', P .. 'jobs:' .. ARGV[2], seq, job)
redis.call('ZADD', P .. 'validating', stamp(), job)
return seq
