-- Keep a voice whose prompt is to be checked. A refused one of its name makes way for it.
-- ARGV: tenant, name, token, digest of all that is sent, upload, seconds an unlisted one is kept unused ("" for a
-- listed one), most listed and most unlisted voices of a tenant, most prompts that wait, seconds until the AOF is
-- rewritten, [field, value]...
-- Returns 1, or 0 where it is there already. Errors: EXISTS (another one of this name), FULL, VOICES
-- uses: memory, voices
local tenant, name = ARGV[1], ARGV[2]
local voice = voice_key(tenant, name)

local function has_all_voices(is_listed)
  if is_listed then return redis.call('ZCARD', voices_key(tenant)) >= tonumber(ARGV[7]) end
  return redis.call('SCARD', unlisted_key(tenant)) >= tonumber(ARGV[8])
end

local status = redis.call('HGET', voice, 'status')
if ARGV[6] ~= '' then
  redis.call('ZADD', P .. 'unlisted_voices', 'GT', now() + tonumber(ARGV[6]), tenant .. '/' .. name)
end
if status and status ~= 'refused' then
  local is_it = ARGV[6] ~= '' or redis.call('HGET', voice, 'digest') == ARGV[4]
  return is_it and 0 or redis.error_reply('EXISTS')
end
if is_short_of_memory() or redis.call('ZCARD', P .. 'prompts') >= tonumber(ARGV[9]) then
  return redis.error_reply('FULL')
end
if not status and has_all_voices(ARGV[6] == '') then
  redis.call('ZREM', P .. 'unlisted_voices', tenant .. '/' .. name)
  return redis.error_reply('VOICES')
end
redis.call('DEL', voice)
redis.call('HSET', voice, 'schema', 1, 'tenant', tenant, 'name', name, 'token', ARGV[3], 'digest', ARGV[4],
  'status', 'validating', 'created_at', stamp(), 'tries', 0)
for position = 11, #ARGV, 2 do redis.call('HSET', voice, ARGV[position], ARGV[position + 1]) end
redis.call('SET', upload_key(ARGV[3]), ARGV[5])
redis.call('ZADD', P .. 'prompts', stamp(), tenant .. '/' .. name)
if ARGV[6] == '' then
  redis.call('ZADD', voices_key(tenant), redis.call('INCR', P .. 'seq'), name)
else
  redis.call('SADD', unlisted_key(tenant), name)
end
rewrite_in(ARGV[10])
return 1
