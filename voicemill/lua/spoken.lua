-- How far the audio is that items may share: of the one that was spoken last, else of the first.
-- ARGV: job, index of the first... Returns [index, state (JSON) or ""]...
local found = {}
for position = 2, #ARGV do
  local index = redis.call('HGET', spoken_key(ARGV[1]), ARGV[position]) or ARGV[position]
  table.insert(found, {tonumber(index), redis.call('HGET', states_key(ARGV[1]), index) or ''})
end
return found
