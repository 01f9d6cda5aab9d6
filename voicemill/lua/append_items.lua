-- Add the next items (1,000 at most) to a job that is still validating.
-- ARGV: job, offset, characters, page count, [page, body]..., id count, [custom_id, index]..., [lane, entry]...
-- uses: items
local job, offset = ARGV[1], tonumber(ARGV[2])
local record = redis.call('HMGET', job_key(job), 'status', 'total')
if record[1] ~= 'validating' or tonumber(record[2]) ~= offset then return 0 end
local at = 5
for _ = 1, tonumber(ARGV[4]) do
  redis.call('HSET', job_key(job) .. ':pages', ARGV[at], ARGV[at + 1])
  at = at + 2
end
local ids = tonumber(ARGV[at])
at = at + 1
for _ = 1, ids do
  redis.call('HSET', job_key(job) .. ':ids', ARGV[at], ARGV[at + 1])
  at = at + 2
end
local added, characters = 0, {}
while at < #ARGV do
  redis.call('RPUSH', queue_key(job, ARGV[at]), ARGV[at + 1])
  characters[ARGV[at]] = (characters[ARGV[at]] or 0) + parse(ARGV[at + 1]).characters
  added = added + 1
  at = at + 2
end
for engine, sum in pairs(characters) do
  redis.call('HINCRBY', job_key(job), 'waiting_characters:' .. engine, sum)
end
redis.call('HINCRBY', job_key(job), 'total', added)
redis.call('HINCRBY', job_key(job), 'queued', added)
redis.call('HINCRBY', job_key(job), 'input_characters', ARGV[3])
redis.call('ZADD', P .. 'validating', 'XX', stamp(), job)
return added
