-- Batches are let in while slots are free: interactive work first, of the tenant that has had least, then
-- by priority, of the fairness key that has had least, oldest job first.
-- uses: costs, queues

local MOST_ITEMS = 64

-- Seconds of a text are a + b * characters, those of a batch `budget` at most; `keep` slots are kept for
-- interactive work, which goes first by up to `lead` seconds; `ids` are for the tasks. Returns
-- [task, estimated seconds, class]...
local function admit(engine, a, b, budget, keep, lead, ids)
  local at = stamp()
  local slots = redis.call('ZCOUNT', P .. 'slots:' .. engine, at, '+inf')
  local tasks = P .. 'tasks:' .. engine
  local admitted = {}
  if redis.call('EXISTS', P .. 'paused') == 1 then return admitted end
  end_pauses(engine)

  -- What runs at children that take no more (they drain or leave) takes nobody's slot.
  local function at_slots()
    local count = redis.call('SCARD', tasks)
    for _, child in ipairs(redis.call('ZRANGE', P .. 'resting:' .. engine, 0, -1)) do
      local task = redis.call('HGET', P .. 'child_tasks', child)
      if task then count = count - redis.call('SISMEMBER', tasks, task) end
    end
    return count
  end

  -- Seconds of a text by the voice's own measurements, if there are enough, else by the engine's.
  local fitted = {}
  local function seconds_of(parts)
    local line = fitted[parts.key]
    if not line then
      local base, slope = fit_cost(parts.key)
      line = base and {base, slope} or {a, b}
      fitted[parts.key] = line
    end
    return line[1] + line[2] * parts.characters
  end

  -- Batches shrink as the queue runs out, so that the last ones end together.
  local function cut(job, room)
    local again = redis.call('LLEN', again_key(job, engine))
    local queue = again > 0 and again_key(job, engine) or queue_key(job, engine)
    local waiting = again + redis.call('LLEN', queue_key(job, engine))
    local most = math.min(MOST_ITEMS, room, math.max(1, math.ceil(waiting / (2 * slots))))
    local entries, characters, cost, key = {}, 0, 0, nil
    for _, entry in ipairs(redis.call('LRANGE', queue, 0, most - 1)) do
      local parts = parse(entry)
      local seconds = seconds_of(parts)
      if #entries > 0 and (parts.alone or parts.key ~= key or cost + seconds > budget) then break end
      table.insert(entries, entry)
      characters, cost, key = characters + parts.characters, cost + seconds, parts.key
      if parts.alone then break end
    end
    if #entries > 0 then redis.call('LPOP', queue, #entries) end
    return entries, characters, cost, #entries == waiting
  end

  -- Interactive work goes first until its tenant is so far ahead of its turn that others would starve.
  local function next_turn(bulk_may)
    local first, tag = first_of(engine .. ':interactive')
    local other, other_tag = first_of(engine .. ':bulk')
    if first and (not other or not bulk_may or tag <= other_tag + lead) then
      return 'interactive', first, tag
    end
    if other and bulk_may then return 'bulk', other, other_tag end
  end

  -- Weight of a tenant, and how many items more it may have running.
  local function terms_of(tenant)
    local terms = redis.call('HMGET', tenant_key(tenant), 'weight', 'max_running_items')
    local running = terms[2] and redis.call('HGET', use_key(tenant), 'running_items') or 0
    return tonumber(terms[1]) or 1, (tonumber(terms[2]) or math.huge) - running
  end

  -- A tenant at its cap waits until something of it has ended.
  local function park(tenant)
    for _, list in ipairs(class_lists(engine)) do leave(list, tenant) end
    redis.call('SADD', P .. 'parked:' .. tenant, engine)
  end

  -- A fairness key that is alone in its line has nobody to share with.
  local function charge_key(task, line, key, tag, cost)
    if redis.call('ZCARD', ready_key(line)) == 1 then return end
    charge(line, {line}, key, tag, cost)
    redis.call('HSET', task_key(task), 'line', line, 'key', key)
  end

  -- Let in the next batch of a tenant. Returns nothing when there was none.
  local function send(task, class, tenant, tag, weight, room)
    local line = first_line(engine, class, tenant)
    local key, key_tag = first_of(line)
    local job = redis.call('ZRANGE', P .. 'waiting:' .. line .. ':' .. key, 0, 0)[1]
    local entries, characters, cost, is_last = cut(job, room)
    if #entries > 0 then
      redis.call('HSET', task_key(task), 'schema', 1, 'job', job, 'engine', engine, 'status', 'admitted',
        'entries', cjson.encode(entries), 'seconds', cost, 'class', class,
        'tenant', tenant, 'weight', weight, 'items', #entries)
      redis.call('HINCRBY', use_key(tenant), 'running_items', #entries)
      redis.call('ZADD', P .. 'admitted', at, task)
      redis.call('SADD', tasks, task)
      if class == 'interactive' then redis.call('SADD', tasks .. ':interactive', task) end
      redis.call('SADD', job_tasks_key(job), task)
      count_waiting_of(job, engine, class, tenant, -#entries, -characters)
      charge(engine, class_lists(engine), tenant, tag, cost / weight)
      charge_key(task, line, key, key_tag, cost)
    end
    if is_last then leave_turn(job, engine) end
    return #entries > 0 and {task, tostring(cost), class} or nil
  end

  -- With nobody who sends interactive work, a slot kept for it would only be lost.
  local function slots_kept()
    local keeps = slots >= 4 and keep > 0
      and redis.call('EXISTS', P .. 'expects_interactive:' .. engine) == 1
    return keeps and math.min(keep, slots - 1) or 0
  end

  local taken, kept = at_slots(), slots_kept()
  local bulk_taken = kept > 0 and taken - redis.call('SCARD', tasks .. ':interactive') or 0
  local position = 1
  while position <= #ids and slots > 0 and taken <= slots do
    local class, tenant, tag = next_turn(kept == 0 or bulk_taken < slots - kept)
    if not class then break end
    local weight, room = terms_of(tenant)
    if room < 1 then
      park(tenant)
    else
      local sent = send(ids[position], class, tenant, tag, weight, room)
      if sent then
        table.insert(admitted, sent)
        position, taken = position + 1, taken + 1
        if class == 'bulk' then bulk_taken = bulk_taken + 1 end
      end
    end
  end
  return admitted
end

-- The same for arguments of a script, from `first` on: engine, a, b, budget, keep, lead, id...
local function admit_as_told(first)
  local engine, a, b, budget, keep, lead = unpack(ARGV, first, first + 5)
  local ids = {unpack(ARGV, first + 6)}
  return admit(engine, tonumber(a), tonumber(b), tonumber(budget), tonumber(keep), tonumber(lead), ids)
end
