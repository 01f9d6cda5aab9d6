-- The verdict on a prompt; the upload is not needed any more.
-- ARGV: tenant, name, token, status, seconds until the AOF is rewritten, [field, value]... Returns 0 where
-- there is a verdict already, or the voice is gone
-- uses: memory, voices
local voice = voice_key(ARGV[1], ARGV[2])
local record = redis.call('HMGET', voice, 'token', 'status')
if record[1] ~= ARGV[3] or record[2] ~= 'validating' then return 0 end
redis.call('HSET', voice, 'status', ARGV[4])
for position = 6, #ARGV, 2 do redis.call('HSET', voice, ARGV[position], ARGV[position + 1]) end
redis.call('ZREM', P .. 'prompts', ARGV[1] .. '/' .. ARGV[2])
redis.call('UNLINK', upload_key(ARGV[3]))
rewrite_in(ARGV[5])
return 1
