-- Whose turn it is: the lines of a tenant, and the jobs in them.
-- uses: fair

-- A job's line: those of its tenant, engine, class and priority. In a line the fairness keys share.
local function line_name(engine, class, tenant, priority)
  return table.concat({engine, class, tenant, priority}, ':')
end

local function class_lists(engine) return {engine .. ':interactive', engine .. ':bulk'} end

-- Priorities of which a tenant has a line, the highest first.
local function lines_key(engine, class, tenant) return P .. 'lines:' .. line_name(engine, class, tenant, '') end

local function first_line(engine, class, tenant)
  local priority = redis.call('ZRANGE', lines_key(engine, class, tenant), 0, 0)[1]
  return priority and line_name(engine, class, tenant, priority)
end

local function place_of(job, engine)
  local fields = redis.call('HMGET', job_key(job), 'tenant', 'class', 'priority', 'fairness_key', 'seq')
  local tenant, class, priority, key = unpack(fields)
  local line = line_name(engine, class, tenant, priority)
  return {tenant = tenant, class = class, priority = priority, key = key, seq = fields[5], line = line,
    lines = lines_key(engine, class, tenant), waiting = P .. 'waiting:' .. line .. ':' .. key}
end

local function await_turn(job, engine)
  local place = place_of(job, engine)
  note_lane(engine)
  redis.call('ZADD', place.waiting, place.seq, job)
  redis.call('ZADD', P .. 'waiting:' .. engine, place.seq, job)
  enter(place.line, {place.line}, place.line, place.key)
  redis.call('ZADD', place.lines, -place.priority, place.priority)
  enter(engine, class_lists(engine), engine .. ':' .. place.class, place.tenant)
  if place.class == 'interactive' then redis.call('SET', P .. 'expects_interactive:' .. engine, 1, 'EX', 600) end
end

local function leave_turn(job, engine)
  local place = place_of(job, engine)
  redis.call('ZREM', P .. 'waiting:' .. engine, job)
  redis.call('ZREM', place.waiting, job)
  if redis.call('EXISTS', place.waiting) == 1 then return end
  leave(place.line, place.key)
  forget_finished(place.line)
  if redis.call('EXISTS', ready_key(place.line)) == 1 then return end
  redis.call('ZREM', place.lines, place.priority)
  if redis.call('EXISTS', place.lines) == 0 then leave(engine .. ':' .. place.class, place.tenant) end
end

-- A tenant that was at its cap waits for its turn again.
local function unpark(tenant)
  local engines = redis.call('SMEMBERS', P .. 'parked:' .. tenant)
  if #engines == 0 then return end
  redis.call('DEL', P .. 'parked:' .. tenant)
  for _, engine in ipairs(engines) do
    for _, class in ipairs({'interactive', 'bulk'}) do
      if first_line(engine, class, tenant) then
        enter(engine, class_lists(engine), engine .. ':' .. class, tenant)
      end
    end
  end
end
