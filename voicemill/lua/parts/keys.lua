-- Key names, the clock and the counters.

local P = 'voicemill:'
local MOST_TOUCHED = 1000

local function job_key(job) return P .. 'job:' .. job end
local function states_key(job) return P .. 'job:' .. job .. ':states' end
local function queue_key(job, engine) return P .. 'job:' .. job .. ':queue:' .. engine end
local function again_key(job, engine) return P .. 'job:' .. job .. ':again:' .. engine end
local function delayed_key(job, engine) return P .. 'job:' .. job .. ':delayed:' .. engine end
local function failed_key(job, engine) return P .. 'job:' .. job .. ':failed:' .. engine end
local function spoken_key(job) return P .. 'job:' .. job .. ':spoken' end
local function job_tasks_key(job) return P .. 'job:' .. job .. ':tasks' end
local function task_key(task) return P .. 'task:' .. task end
local function tenant_key(tenant) return P .. 'tenant:' .. tenant end
local function use_key(tenant) return P .. 'use:' .. tenant end

-- Items wait in the lane of their engine, or in one of a revision of it: "engine@revision".
local function engine_of(lane) return string.match(lane, '^[^@]+') end

-- Lanes of single revisions that an engine has.
local function lanes_key(engine) return P .. 'lanes:' .. engine end

local function note_lane(lane)
  local engine = engine_of(lane)
  if lane ~= engine then redis.call('SADD', lanes_key(engine), lane) end
end

local function all_lanes()
  local lanes = redis.call('HKEYS', P .. 'engines')
  for position = 1, #lanes do
    for _, lane in ipairs(redis.call('SMEMBERS', lanes_key(lanes[position]))) do table.insert(lanes, lane) end
  end
  return lanes
end

local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function stamp() return string.format('%.6f', now()) end

local function measure(name, labels, by)
  redis.call('HINCRBYFLOAT', P .. 'metrics', name .. '|' .. labels, by)
end
