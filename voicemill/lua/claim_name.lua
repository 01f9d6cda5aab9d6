-- A worker takes its node name, or keeps it. ARGV: node, claim, lease seconds, claim that may be replaced or ""
-- Returns [the claim that holds the name now, seconds it lasts].
-- uses: keys
local key = P .. 'name:' .. ARGV[1]
local held = redis.call('GET', key)
if not held or held == ARGV[2] or held == ARGV[4] then
  redis.call('SET', key, ARGV[2], 'PX', math.ceil(ARGV[3] * 1000))
  held = ARGV[2]
end
return {held, tostring(redis.call('PTTL', key) / 1000)}
