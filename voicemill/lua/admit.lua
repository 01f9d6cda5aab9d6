-- Let batches in while slots are free: tenants in turn, oldest job first.
-- ARGV: engine, a, b (seconds = a + b * characters), seconds per batch, task id...
-- Returns [task, estimated seconds]...
local engine, a, b, budget = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local MOST_ITEMS = 64
local slots = redis.call('ZCOUNT', P .. 'slots:' .. engine, now(), '+inf')
local tasks = P .. 'tasks:' .. engine
local admitted = {}
if redis.call('EXISTS', P .. 'paused') == 1 then return admitted end
end_pauses(engine)

-- What runs at children that take no more (they drain or leave) takes nobody's slot.
local function at_slots()
  local count = redis.call('SCARD', tasks)
  for _, task in ipairs(redis.call('HVALS', P .. 'child_tasks')) do
    local child = redis.call('HGET', task_key(task), 'child')
    if child and not redis.call('ZSCORE', P .. 'slots:' .. engine, child) then
      count = count - redis.call('SISMEMBER', tasks, task)
    end
  end
  return count
end

-- Batches shrink as the queue runs out, so that the last ones end together.
local function cut(queue)
  local entries, characters, cost, key = {}, 0, 0, nil
  local most = math.min(MOST_ITEMS, math.max(1, math.ceil(redis.call('LLEN', queue) / (2 * slots))))
  while #entries < most do
    local entry = redis.call('LINDEX', queue, 0)
    if not entry then break end
    local parts = parse(entry)
    local seconds = a + b * parts.characters
    if #entries > 0 and (parts.alone or parts.key ~= key or cost + seconds > budget) then break end
    redis.call('LPOP', queue)
    table.insert(entries, entry)
    characters, cost, key = characters + parts.characters, cost + seconds, parts.key
    if parts.alone then break end
  end
  return entries, characters, cost
end

local taken = at_slots()
for position = 5, #ARGV do
  if slots == 0 or taken > slots then break end
  local tenant = redis.call('ZRANGE', P .. 'ready:' .. engine, 0, 0)[1]
  if not tenant then break end
  local job = redis.call('ZRANGE', P .. 'waiting:' .. engine .. ':' .. tenant, 0, 0)[1]
  local queue = queue_key(job, engine)
  local entries, characters, cost = cut(queue)
  local task = ARGV[position]
  if #entries > 0 then
    redis.call('HSET', task_key(task), 'schema', 1, 'job', job, 'engine', engine, 'status', 'admitted',
      'entries', cjson.encode(entries), 'seconds', cost)
    redis.call('ZADD', P .. 'admitted', stamp(), task)
    redis.call('SADD', tasks, task)
    redis.call('SADD', job_tasks_key(job), task)
    count_waiting(job, engine, -#entries, -characters)
    table.insert(admitted, {task, tostring(cost)})
    taken = taken + 1
  end
  if redis.call('LLEN', queue) == 0 then leave_turn(job, engine) end
  redis.call('ZADD', P .. 'ready:' .. engine, 'XX', redis.call('INCR', P .. 'turn'), tenant)
end
return admitted
