-- Begin a job, or refuse it: FULL where the store has no room, CAP where its tenant has no more.
-- ARGV: job, tenant, metadata (JSON), lanes (JSON), class, priority, fairness key, most failed items,
-- seconds until it expires, seconds its outputs are kept, silence (ms) between the items' audio in one file
-- (each of the four may be ""), items, characters, bytes, most bytes, "never" where audio is not to be
-- reused, limits of its items (JSON or ""), and the revision that it asked for or ""
-- uses: jobs, memory, waiting
local job, tenant = ARGV[1], ARGV[2]
if redis.call('EXISTS', job_key(job)) == 1 then return redis.error_reply('JOBEXISTS') end

local queued = tonumber(redis.call('GET', P .. 'queued_bytes')) or 0
if queued + ARGV[14] > tonumber(ARGV[15]) or is_short_of_memory() then return redis.error_reply('FULL') end
local refusal = check_caps(tenant, ARGV[12], ARGV[13])
if refusal then return refusal end
local seq = redis.call('INCR', P .. 'seq')
redis.call('HSET', job_key(job),
  'schema', 1, 'id', job, 'tenant', tenant, 'seq', seq, 'status', 'validating', 'created_at', stamp(),
  'total', 0, 'queued', 0, 'in_progress', 0, 'succeeded', 0, 'failed', 0, 'cancelled', 0, 'expired', 0,
  'cached', 0, 'input_characters', 0, 'done_characters', 0, 'audio_seconds', 0, 'device_seconds', 0,
  'metadata', ARGV[3], 'engines', ARGV[4], 'class', ARGV[5], 'priority', ARGV[6], 'fairness_key', ARGV[7],
  'run', 1, 'max_failures', ARGV[8], 'deadline_seconds', ARGV[9], 'output_expires_after', ARGV[10],
  'concatenate_silence_ms', ARGV[11], 'reserved_items', ARGV[12], 'reserved_characters', ARGV[13],
  'bytes', ARGV[14])
if ARGV[16] == 'never' then redis.call('HSET', job_key(job), 'reuse', 'never') end
if (ARGV[17] or '') ~= '' then redis.call('HSET', job_key(job), 'limits', ARGV[17]) end
if (ARGV[18] or '') ~= '' then redis.call('HSET', job_key(job), 'revision', ARGV[18]) end
for _, lane in ipairs(cjson.decode(ARGV[4])) do note_lane(lane) end
count_use(tenant, ARGV[12], ARGV[13])
redis.call('INCRBY', P .. 'queued_bytes', ARGV[14])
redis.call('ZADD', P .. 'jobs:' .. tenant, seq, job)
redis.call('ZADD', listed_key(tenant, 'validating'), seq, job)
redis.call('ZADD', P .. 'validating', stamp(), job)
return seq
