-- A place that was left for another revision has a child again. ARGV: engine, place
-- uses: keys
local breaks = P .. 'breaks:' .. ARGV[1]
if redis.call('GET', breaks) == ARGV[2] then redis.call('DEL', breaks) end
return 0
