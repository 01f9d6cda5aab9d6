-- Have a prompt wait again, as if it had not been taken. ARGV: tenant, name, token, seconds
-- uses: voices
local voice = voice_key(ARGV[1], ARGV[2])
local record = redis.call('HMGET', voice, 'token', 'status')
if record[1] ~= ARGV[3] or record[2] ~= 'validating' then return 0 end
redis.call('HINCRBY', voice, 'tries', -1)
redis.call('ZADD', P .. 'prompts', 'XX', now() + tonumber(ARGV[4]), ARGV[1] .. '/' .. ARGV[2])
return 1
