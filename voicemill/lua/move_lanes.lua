-- Jobs that did not ask for a revision themselves leave its lane while their tenants have no canaries, so many at
-- once. Lanes in which nothing is left are forgotten until a job waits there. ARGV: engine, most. Returns how many
-- uses: lines, revisions, waiting
local engine, most, moved = ARGV[1], tonumber(ARGV[2]), 0
local trial = trial_of(engine)
local tried = trial and engine .. '@' .. trial
local kept = tried and has_slots(tried) and tried

local function move(from, to)
  if redis.call('EXISTS', to) == 0 then
    if redis.call('EXISTS', from) == 1 then redis.call('RENAME', from, to) end
    return
  end
  for _, entry in ipairs(redis.call('LRANGE', from, 0, -1)) do redis.call('RPUSH', to, entry) end
  redis.call('DEL', from)
end

local function move_sum(job, what, lane)
  local sum = redis.call('HGET', job_key(job), what .. lane)
  redis.call('HDEL', job_key(job), what .. lane)
  if sum then redis.call('HINCRBY', job_key(job), what .. engine, sum) end
end

local function leave_lane(job, lane)
  local items = redis.call('LLEN', queue_key(job, lane)) + redis.call('LLEN', again_key(job, lane))
    + redis.call('ZCARD', delayed_key(job, lane))
  local characters = tonumber(redis.call('HGET', job_key(job), 'waiting_characters:' .. lane)) or 0
  count_waiting(job, lane, -items, -characters)
  count_waiting(job, engine, items, characters)
  redis.call('HDEL', job_key(job), 'waiting_characters:' .. lane)
  leave_turn(job, lane)
  move(queue_key(job, lane), queue_key(job, engine))
  move(again_key(job, lane), again_key(job, engine))
  move(failed_key(job, lane), failed_key(job, engine))
  move_sum(job, 'failed_characters:', lane)
  local delayed = redis.call('ZRANGE', delayed_key(job, lane), 0, -1, 'WITHSCORES')
  for position = 1, #delayed, 2 do
    redis.call('ZADD', delayed_key(job, engine), delayed[position + 1], delayed[position])
    redis.call('ZADD', P .. 'delayed:' .. engine, 'LT', delayed[position + 1], job)
  end
  redis.call('DEL', delayed_key(job, lane))
  redis.call('ZREM', P .. 'delayed:' .. lane, job)
  local lanes = {[engine] = true, [lane] = true}
  for _, one in ipairs(cjson.decode(redis.call('HGET', job_key(job), 'engines'))) do lanes[one] = true end
  local names = {}
  for one in pairs(lanes) do table.insert(names, one) end
  table.sort(names)
  redis.call('HSET', job_key(job), 'engines', cjson.encode(names))
  await_turn(job, engine)
end

local function is_empty(lane)
  local waiting = tonumber(redis.call('HGET', P .. 'queued_items', lane)) or 0
  return waiting == 0 and redis.call('SCARD', P .. 'tasks:' .. lane) == 0
end

local function forget(lane)
  redis.call('SREM', lanes_key(engine), lane)
  redis.call('DEL', P .. 'slots:' .. lane, P .. 'resting:' .. lane)
  for _, field in ipairs({lane, lane .. ':interactive'}) do
    redis.call('HDEL', P .. 'queued_items', field)
    redis.call('HDEL', P .. 'queued_characters', field)
  end
end

for _, lane in ipairs(redis.call('SMEMBERS', lanes_key(engine))) do
  if lane ~= kept then
    for _, waiting in ipairs({'waiting:', 'delayed:'}) do
      for _, job in ipairs(redis.call('ZRANGE', P .. waiting .. lane, 0, -1)) do
        if moved == most then return moved end
        if redis.call('HEXISTS', job_key(job), 'revision') == 0 then
          leave_lane(job, lane)
          moved = moved + 1
        end
      end
    end
    if is_empty(lane) and lane ~= tried then forget(lane) end
  end
end
return moved
