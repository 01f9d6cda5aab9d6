-- Which revision of its model a child is to have. In a rollout some places (a slot of a worker) are canaries.
-- uses: keys

local BASE = 'base'

local function deployment_key(engine) return P .. 'deployment:' .. engine end
local function rollout_key(rollout) return P .. 'rollout:' .. rollout end
local function canaries_key(engine) return P .. 'canaries:' .. engine end
local function places_key(engine) return P .. 'places:' .. engine end
local function apart_key(engine) return P .. 'apart:' .. engine end
local function capabilities_key(engine) return P .. 'capabilities:' .. engine end
local function figures_key(engine, revision) return P .. 'figures:' .. engine .. ':' .. revision end

-- The revision in use, and the rollout that goes on, if one does.
local function deployment_of(engine)
  local fields = redis.call('HMGET', deployment_key(engine), 'current', 'rollout')
  return fields[1] or BASE, fields[2]
end

-- The revision for a place that is heard of until `expiry`. A place that is a canary stays one.
local function revision_for(engine, place, expiry)
  local at, places, canaries = now(), places_key(engine), canaries_key(engine)
  redis.call('ZREMRANGEBYSCORE', places, '-inf', at)
  redis.call('ZADD', places, expiry, place)
  local current, rollout = deployment_of(engine)
  if not rollout then return current end
  local fields = redis.call('HMGET', rollout_key(rollout), 'status', 'revision', 'children', 'percent', 'tenants')
  if fields[1] ~= 'canary' then return current end
  if not redis.call('ZSCORE', canaries, place) then
    local total = redis.call('ZCOUNT', places, at, '+inf')
    local most = tonumber(fields[3]) or math.max(1, math.floor(total * fields[4] / 100))
    if fields[5] ~= '[]' then most = math.min(most, total - 1) end
    if redis.call('ZCOUNT', canaries, at, '+inf') >= most then return current end
  end
  redis.call('ZADD', canaries, expiry, place)
  return fields[2]
end

-- What an engine can do is what its revision in use can.
local function show_capabilities(engine, revision)
  local record = redis.call('HGET', capabilities_key(engine), revision)
  if record then redis.call('HSET', P .. 'engines', engine, record) end
end

-- The revision whose canaries speak for some tenants alone, and these tenants (JSON), if there are such.
local function trial_of(engine)
  local _, rollout = deployment_of(engine)
  if not rollout then return nil end
  local fields = redis.call('HMGET', rollout_key(rollout), 'status', 'revision', 'tenants')
  if fields[1] ~= 'canary' or fields[3] == '[]' then return nil end
  return fields[2], fields[3]
end

local function has_slots(lane) return redis.call('ZCOUNT', P .. 'slots:' .. lane, now(), '+inf') > 0 end

-- Whether a child that is not kept for some tenants takes work.
local function others_speak(engine)
  for _, child in ipairs(redis.call('ZRANGEBYSCORE', P .. 'slots:' .. engine, now(), '+inf')) do
    if redis.call('SISMEMBER', apart_key(engine), child) == 0 then return true end
  end
  return false
end

-- Whether a child that has a revision speaks what waits in a lane. Canaries for some tenants speak for them alone
-- while there are others for everybody else.
local function serves(engine, revision, lane)
  if lane ~= engine then return lane == engine .. '@' .. revision end
  return trial_of(engine) ~= revision or not others_speak(engine)
end

-- A child takes work from the lanes it serves, or rests. Returns these lanes.
local function take_place(engine, revision, child, expiry, takes_work)
  local served = {}
  redis.call(trial_of(engine) == revision and 'SADD' or 'SREM', apart_key(engine), child)
  for _, lane in ipairs({engine, unpack(redis.call('SMEMBERS', lanes_key(engine)))}) do
    local slots, resting = P .. 'slots:' .. lane, P .. 'resting:' .. lane
    local is_served = serves(engine, revision, lane)
    redis.call('ZREM', takes_work and resting or slots, child)
    if is_served then
      redis.call('ZADD', takes_work and slots or resting, expiry, child)
      table.insert(served, lane)
    else
      redis.call('ZREM', takes_work and slots or resting, child)
    end
  end
  return served
end

local function roll_back(rollout, engine, previous, reason)
  redis.call('HSET', rollout_key(rollout), 'status', 'rolling_back', 'reason', reason)
  redis.call('HSET', deployment_key(engine), 'current', previous)
  redis.call('DEL', canaries_key(engine))
  show_capabilities(engine, previous)
end
