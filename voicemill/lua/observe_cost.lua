-- Fold one measurement into the decaying sums that costs.py fits. ARGV: model, characters, seconds, decay
local key = P .. 'costs:' .. ARGV[1]
local x, y, decay = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local sums = redis.call('HMGET', key, 'n', 'x', 'y', 'xx', 'xy')
local adds = {1, x, y, x * x, x * y}
for i, name in ipairs({'n', 'x', 'y', 'xx', 'xy'}) do
  redis.call('HSET', key, name, string.format('%.9g', (tonumber(sums[i]) or 0) * decay + adds[i]))
end
return 1
