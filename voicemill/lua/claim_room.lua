-- A child that is about to load is promised memory of its device, if that is free beside what others were promised.
-- ARGV: device, who, bytes needed, bytes free, seconds the promise holds, 1 if it is promised whatever is free
-- Returns [1 if it was promised, bytes that others were promised]
-- uses: keys
local device, who, needed, free = P .. 'room:' .. ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local others, at = 0, now()
local promises = redis.call('HGETALL', device)
for place = 1, #promises, 2 do
  local expiry, bytes = string.match(promises[place + 1], '^(%S+) (%S+)$')
  if tonumber(expiry) <= at then
    redis.call('HDEL', device, promises[place])
  elseif promises[place] ~= who then
    others = others + tonumber(bytes)
  end
end
if ARGV[6] == '0' and needed > free - others then
  redis.call('HDEL', device, who)
  return {0, others}
end
redis.call('HSET', device, who, (at + tonumber(ARGV[5])) .. ' ' .. ARGV[3])
return {1, others}
