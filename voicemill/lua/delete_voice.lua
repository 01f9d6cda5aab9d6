-- Forget a voice; a clerk removes its clip, children what they made of it.
-- ARGV: tenant, name, token (or "" for whichever), seconds until the AOF is rewritten, unix time up to which an
-- unlisted one must have been unused ("" where that does not matter). Returns 0 where there is none
-- uses: memory, voices
local tenant, name = ARGV[1], ARGV[2]
local voice, member = voice_key(tenant, name), tenant .. '/' .. name
local record = redis.call('HMGET', voice, 'token', 'sha256')
if not record[1] or (ARGV[3] ~= '' and record[1] ~= ARGV[3]) then return 0 end
if ARGV[5] ~= '' then
  local due = redis.call('ZSCORE', P .. 'unlisted_voices', member)
  if due and tonumber(due) > tonumber(ARGV[5]) then return 0 end
end
redis.call('UNLINK', voice, upload_key(record[1]), voice_jobs_key(tenant, name))
redis.call('ZREM', voices_key(tenant), name)
redis.call('SREM', unlisted_key(tenant), name)
redis.call('ZREM', P .. 'unlisted_voices', member)
redis.call('ZREM', P .. 'prompts', member)
if record[2] then
  redis.call('SADD', P .. 'voice_removals', tenant .. '/' .. record[2] .. '.' .. record[1] .. '.wav')
end
redis.call('INCR', P .. 'voice_deletions')
rewrite_in(ARGV[4])
return 1
