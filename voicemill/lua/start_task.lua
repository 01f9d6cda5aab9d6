-- The start-of-task compare-and-set: a second copy of the message finds nothing to take.
-- ARGV: task, token, child, lease seconds, revision that the child has. Returns nil or
-- [job, indexes (JSON), tenant, lane, reuse, limits of the job's items, those of its tenant's (JSON or "")]
-- or, where the child has not the revision it waits for, [lane, estimated seconds, class, times it came to such]
-- uses: items, revisions
local task = ARGV[1]
local record = redis.call('HMGET', task_key(task), 'status', 'job', 'entries', 'schema', 'token', 'engine')
-- The same call again, because its answer was lost, carries the token that has it already.
local is_ours = record[1] == 'running' and record[5] == ARGV[2]
local lane = record[6]
if record[4] ~= '1' or not (record[1] == 'admitted' or is_ours) then return nil end
local engine = engine_of(lane)
if not is_ours and not serves(engine, ARGV[5], lane) then
  local fields = redis.call('HMGET', task_key(task), 'seconds', 'class')
  return {lane, fields[1], fields[2], tostring(redis.call('HINCRBY', task_key(task), 'detours', 1))}
end
redis.call('HSET', task_key(task), 'status', 'running', 'token', ARGV[2], 'child', ARGV[3])
redis.call('HSETNX', task_key(task), 'started_at', stamp())
local _, rollout = deployment_of(engine)
if rollout then redis.call('HSET', task_key(task), 'revision', ARGV[5]) end
redis.call('HSET', P .. 'child_tasks', ARGV[3], task)
redis.call('ZREM', P .. 'admitted', task)
redis.call('ZADD', P .. 'running', now() + tonumber(ARGV[4]), task)
local indexes = {}
for _, entry in ipairs(cjson.decode(record[3])) do table.insert(indexes, parse(entry).index) end
local job = redis.call('HMGET', job_key(record[2]), 'tenant', 'reuse', 'limits')
local tenant = job[1] or ''
local limits = redis.call('HGET', tenant_key(tenant), 'limits')
return {record[2], cjson.encode(indexes), tenant, lane, job[2] or '', job[3] or '', limits or ''}
