-- The audio and the texts of a job are gone. ARGV: job, seconds until the AOF is rewritten
-- uses: memory
rewrite_in(ARGV[2])
return redis.call('ZREM', P .. 'expiries', ARGV[1])
