-- A child says that it lives.
-- ARGV: child, node, engine, lease seconds, record (JSON), takes work (1 or 0), sessions opened and destroyed
-- since its last beat, its place, its revision
-- Returns [recycles asked of it and its node, 1 if either drains or 0, wanted revision, voices that were ever
-- deleted, lanes it serves]
-- uses: revisions
local child, node, engine = ARGV[1], ARGV[2], ARGV[3]
local expiry = now() + tonumber(ARGV[4])
redis.call('ZADD', P .. 'children', expiry, child)
redis.call('SET', P .. 'child:' .. child, ARGV[5], 'PX', math.ceil(ARGV[4] * 1000))
local drains = redis.call('SISMEMBER', P .. 'draining', child) + redis.call('SISMEMBER', P .. 'draining', node)
local lanes = take_place(engine, ARGV[10], child, expiry, ARGV[6] == '1' and drains == 0)
for position, event in ipairs({'opened', 'destroyed'}) do
  local more = tonumber(ARGV[6 + position])
  if more > 0 then measure('voicemill_sessions_total', 'event=' .. event, more) end
end
local recycles = redis.call('HMGET', P .. 'recycle_orders', child, node)
return {
  (tonumber(recycles[1]) or 0) + (tonumber(recycles[2]) or 0),
  math.min(drains, 1),
  revision_for(engine, ARGV[9], expiry),
  tonumber(redis.call('GET', P .. 'voice_deletions')) or 0,
  lanes,
}
