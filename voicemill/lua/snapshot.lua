-- What health judges. Returns [now, clerks alive, [child record]...,
-- [engine, slots, queued items, queued characters, tasks, interactive items, interactive characters]...,
-- [worker record]..., 1 if the queue is paused, [draining id]...]
-- uses: fleet
local at = now()
local engines = {}
local function queued(what, field) return tonumber(redis.call('HGET', P .. what, field) or '0') end
for _, engine in ipairs(all_lanes()) do
  table.insert(engines, {
    engine,
    redis.call('ZCOUNT', P .. 'slots:' .. engine, at, '+inf'),
    queued('queued_items', engine),
    queued('queued_characters', engine),
    redis.call('SCARD', P .. 'tasks:' .. engine),
    queued('queued_items', engine .. ':interactive'),
    queued('queued_characters', engine .. ':interactive'),
  })
end
return {
  tostring(at), redis.call('ZCOUNT', P .. 'clerks', at, '+inf'),
  live_records('children', 'child:', at), engines, live_records('workers', 'worker:', at),
  redis.call('EXISTS', P .. 'paused'), redis.call('SMEMBERS', P .. 'draining'),
}
