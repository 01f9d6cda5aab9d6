-- Make a validated job live. ARGV: job, expected total
local job = ARGV[1]
local record = redis.call('HMGET', job_key(job), 'status', 'total', 'models')
if record[1] ~= 'validating' or record[2] ~= ARGV[2] then return 0 end
move_job(job, 'queued')
redis.call('ZREM', P .. 'validating', job)
for _, model in ipairs(cjson.decode(record[3])) do
  redis.call('HINCRBY', P .. 'queued_items', model, redis.call('LLEN', queue_key(job, model)))
  await_turn(job, model)
end
return 1
