-- The queues of a job: what has not been let in yet; what comes again, which goes before that, in the order
-- it comes in, so that none of it passes what it waits for; and what is delayed until a time.
-- uses: items, lines, waiting

-- Have an item come again; with a pause, once that is over.
local function requeue(job, engine, entry, alone, pause)
  local parts = parse(entry)
  local again = table.concat({parts.index, parts.characters, parts.key, alone and 1 or 0}, '\t')
  count_waiting(job, engine, 1, parts.characters)
  if pause > 0 then
    redis.call('ZADD', delayed_key(job, engine), now() + pause, again)
    redis.call('ZADD', P .. 'delayed:' .. engine, 'LT', now() + pause, job)
  else
    redis.call('RPUSH', again_key(job, engine), again)
    await_turn(job, engine)
  end
end

-- Items whose pause is over come again, so many at once.
local function end_pauses(engine)
  local at, room = now(), 32
  local due = redis.call('ZRANGEBYSCORE', P .. 'delayed:' .. engine, '-inf', at, 'LIMIT', 0, 16)
  for _, job in ipairs(due) do
    local delayed = delayed_key(job, engine)
    for _, entry in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', at, 'LIMIT', 0, room)) do
      redis.call('ZREM', delayed, entry)
      redis.call('RPUSH', again_key(job, engine), entry)
      room = room - 1
    end
    await_turn(job, engine)
    local left = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
    if left[1] then
      redis.call('ZADD', P .. 'delayed:' .. engine, left[2], job)
    else
      redis.call('ZREM', P .. 'delayed:' .. engine, job)
    end
  end
end

-- Drop all of a job that waits for an engine; gives how many items.
local function drop_waiting(job, engine)
  local queue, again, delayed = queue_key(job, engine), again_key(job, engine), delayed_key(job, engine)
  local items = redis.call('LLEN', queue) + redis.call('LLEN', again) + redis.call('ZCARD', delayed)
  redis.call('DEL', queue, again, delayed)
  redis.call('ZREM', P .. 'delayed:' .. engine, job)
  leave_turn(job, engine)
  return items
end
