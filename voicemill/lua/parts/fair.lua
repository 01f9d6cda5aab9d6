-- Start-time fair queueing, as fairness.py has it: who share a device are the members of a node.
-- A member that has something waiting stands in one list of the node, or in several, by its start
-- tag: seconds of device time divided by its weight. The lowest tag goes next.
-- uses: keys

local REMEMBERED_SECONDS = 3600

local function ready_key(list) return P .. 'ready:' .. list end
local function finish_key(node) return P .. 'finish:' .. node end
local function virtual_time(node) return tonumber(redis.call('GET', P .. 'virtual:' .. node)) or 0 end

local function first_of(list)
  local head = redis.call('ZRANGE', ready_key(list), 0, 0, 'WITHSCORES')
  return head[1], tonumber(head[2])
end

local function enter(node, lists, list, member)
  local finish = tonumber(redis.call('ZSCORE', finish_key(node), member)) or 0
  local tag = math.max(virtual_time(node), finish)
  for _, other in ipairs(lists) do
    tag = tonumber(redis.call('ZSCORE', ready_key(other), member)) or tag
  end
  redis.call('ZADD', ready_key(list), 'NX', tag, member)
end

local function leave(list, member) redis.call('ZREM', ready_key(list), member) end

-- A member of a list is served, at its tag; its next turn is `amount` (seconds by weight) later.
local function charge(node, lists, member, tag, amount)
  if tag > virtual_time(node) then redis.call('SET', P .. 'virtual:' .. node, tag) end
  redis.call('ZADD', finish_key(node), tag + amount, member)
  for _, list in ipairs(lists) do redis.call('ZADD', ready_key(list), 'XX', tag + amount, member) end
end

-- Who finished long ago begins where the others are anyway.
local function forget_finished(node)
  redis.call('ZREMRANGEBYSCORE', finish_key(node), '-inf', virtual_time(node) - REMEMBERED_SECONDS)
end

-- What a member was served cost so much more than it was charged, or less: the tags it waits with
-- are corrected too, unless it was away meanwhile and came back at a later one.
local function correct(node, lists, member, amount)
  local before = tonumber(redis.call('ZSCORE', finish_key(node), member))
  if not before then return end
  redis.call('ZADD', finish_key(node), before + amount, member)
  for _, list in ipairs(lists) do
    local waiting = tonumber(redis.call('ZSCORE', ready_key(list), member))
    if waiting then
      local after = waiting == before and before + amount or math.max(waiting, before + amount)
      redis.call('ZADD', ready_key(list), after, member)
    end
  end
end
