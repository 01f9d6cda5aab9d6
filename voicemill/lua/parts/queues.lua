-- The queues of a job: what goes back to them, and what is dropped.
-- uses: items, lines, waiting

-- Put an item at the head of its queue; with a pause, once that is over.
local function requeue(job, engine, entry, alone, pause)
  local parts = parse(entry)
  local again = table.concat({parts.index, parts.characters, parts.key, alone and 1 or 0}, '\t')
  count_waiting(job, engine, 1, parts.characters)
  if pause > 0 then
    redis.call('ZADD', delayed_key(job, engine), now() + pause, again)
    redis.call('ZADD', P .. 'delayed:' .. engine, 'LT', now() + pause, job)
  else
    redis.call('LPUSH', queue_key(job, engine), again)
    await_turn(job, engine)
  end
end

-- Items whose pause is over go to the head of their queues, so many at once.
local function end_pauses(engine)
  local at, room = now(), 32
  local due = redis.call('ZRANGEBYSCORE', P .. 'delayed:' .. engine, '-inf', at, 'LIMIT', 0, 16)
  for _, job in ipairs(due) do
    local delayed = delayed_key(job, engine)
    for _, entry in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', at, 'LIMIT', 0, room)) do
      redis.call('ZREM', delayed, entry)
      redis.call('LPUSH', queue_key(job, engine), entry)
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
  local items = redis.call('LLEN', queue_key(job, engine)) + redis.call('ZCARD', delayed_key(job, engine))
  redis.call('DEL', queue_key(job, engine), delayed_key(job, engine))
  redis.call('ZREM', P .. 'delayed:' .. engine, job)
  leave_turn(job, engine)
  return items
end
