-- Change what is said about a voice. ARGV: tenant, name, [field, value]... Returns 0 where there is none
-- uses: voices
local voice = voice_key(ARGV[1], ARGV[2])
if redis.call('EXISTS', voice) == 0 then return 0 end
for position = 3, #ARGV, 2 do redis.call('HSET', voice, ARGV[position], ARGV[position + 1]) end
return 1
