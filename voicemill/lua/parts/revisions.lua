-- Which revision of its model a child is to have. In a rollout some places (a slot of a worker) are canaries.
-- uses: keys

local BASE = 'base'

local function deployment_key(engine) return P .. 'deployment:' .. engine end
local function rollout_key(rollout) return P .. 'rollout:' .. rollout end
local function canaries_key(engine) return P .. 'canaries:' .. engine end
local function places_key(engine) return P .. 'places:' .. engine end
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
  redis.call('ZADD', places, 'GT', expiry, place)
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
  redis.call('ZADD', canaries, 'GT', expiry, place)
  return fields[2]
end

-- What an engine can do is what its revision in use can.
local function show_capabilities(engine, revision)
  local record = redis.call('HGET', capabilities_key(engine), revision)
  if record then redis.call('HSET', P .. 'engines', engine, record) end
end

local function roll_back(rollout, engine, previous, reason)
  redis.call('HSET', rollout_key(rollout), 'status', 'rolling_back', 'reason', reason)
  redis.call('HSET', deployment_key(engine), 'current', previous)
  redis.call('DEL', canaries_key(engine))
  show_capabilities(engine, previous)
end
