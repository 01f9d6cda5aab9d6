-- What health judges. Returns [now, clerks alive, [child record]...,
-- [engine, slots, queued items, queued characters, tasks]..., [worker record]...,
-- 1 if the queue is paused, [draining id]...]
local at = now()
local engines = {}
for _, engine in ipairs(redis.call('HKEYS', P .. 'engines')) do
  table.insert(engines, {
    engine,
    redis.call('ZCOUNT', P .. 'slots:' .. engine, at, '+inf'),
    tonumber(redis.call('HGET', P .. 'queued_items', engine) or '0'),
    tonumber(redis.call('HGET', P .. 'queued_characters', engine) or '0'),
    redis.call('SCARD', P .. 'tasks:' .. engine),
  })
end
return {
  tostring(at), redis.call('ZCOUNT', P .. 'clerks', at, '+inf'),
  live_records('children', 'child:', at), engines, live_records('workers', 'worker:', at),
  redis.call('EXISTS', P .. 'paused'), redis.call('SMEMBERS', P .. 'draining'),
}
