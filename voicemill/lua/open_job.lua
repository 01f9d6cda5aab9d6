-- Make a validated job live. ARGV: job, expected total. Returns its record, or nothing if it is not to be opened
-- uses: jobs, lines, waiting
local job = ARGV[1]
local record = redis.call('HMGET', job_key(job), 'status', 'total', 'engines', 'class')
if record[1] ~= 'validating' or record[2] ~= ARGV[2] then return {} end
move_job(job, 'queued')
redis.call('ZREM', P .. 'validating', job)
set_deadline(job)
for _, engine in ipairs(cjson.decode(record[3])) do
  local characters = redis.call('HGET', job_key(job), 'waiting_characters:' .. engine)
  count_queued(engine, record[4], redis.call('LLEN', queue_key(job, engine)), characters)
  await_turn(job, engine)
end
return redis.call('HGETALL', job_key(job))
