-- What health judges. Returns [now, clerks alive, [child record]...,
-- [engine, slots, queued items, queued characters, tasks]...]
local at = now()
local children, engines = {}, {}
for _, child in ipairs(redis.call('ZRANGEBYSCORE', P .. 'children', at, '+inf')) do
  local record = redis.call('GET', P .. 'child:' .. child)
  if record then table.insert(children, record) end
end
for _, engine in ipairs(redis.call('HKEYS', P .. 'engines')) do
  table.insert(engines, {
    engine,
    redis.call('ZCOUNT', P .. 'slots:' .. engine, at, '+inf'),
    tonumber(redis.call('HGET', P .. 'queued_items', engine) or '0'),
    tonumber(redis.call('HGET', P .. 'queued_characters', engine) or '0'),
    redis.call('SCARD', P .. 'tasks:' .. engine),
  })
end
local workers = {}
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', P .. 'workers', at, '+inf')) do
  local record = redis.call('GET', P .. 'worker:' .. worker)
  if record then table.insert(workers, record) end
end
return {
  tostring(at), redis.call('ZCOUNT', P .. 'clerks', at, '+inf'), children, engines, workers,
  redis.call('EXISTS', P .. 'paused'), redis.call('SMEMBERS', P .. 'draining'),
}
