-- How much the server still takes, and when it forgets what was deleted.
-- uses: keys

local MOST_MEMORY = 0.9

-- What is left is for the jobs there are. A Redis that takes no writes at all says so itself.
local function is_short_of_memory()
  local memory = redis.call('INFO', 'memory')
  local used = tonumber(string.match(memory, 'used_memory:(%d+)'))
  local most = tonumber(string.match(memory, 'maxmemory:(%d+)'))
  return most > used and used > MOST_MEMORY * most
end

-- Have the append-only file written anew some time from now, if that is not planned already.
local function rewrite_in(seconds)
  redis.call('SET', P .. 'rewrite_at', now() + tonumber(seconds), 'NX')
end
