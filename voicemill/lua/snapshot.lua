-- What health judges. Returns [now, clerk alive, [child record, takes work]..., [model, slots, queued items]...]
local at = now()
local children, models = {}, {}
for _, child in ipairs(redis.call('ZRANGEBYSCORE', P .. 'children', at, '+inf')) do
  local record = redis.call('GET', P .. 'child:' .. child)
  if record then table.insert(children, record) end
end
for _, model in ipairs(redis.call('HKEYS', P .. 'engines')) do
  table.insert(models, {
    model,
    redis.call('ZCOUNT', P .. 'slots:' .. model, at, '+inf'),
    tonumber(redis.call('HGET', P .. 'queued_items', model) or '0'),
    redis.call('SCARD', P .. 'tasks:' .. model),
  })
end
return {tostring(at), redis.call('ZCOUNT', P .. 'clerks', at, '+inf'), children, models}
