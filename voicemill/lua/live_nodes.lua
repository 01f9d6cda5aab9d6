-- Incarnations of workers that are alive.
-- uses: keys
return redis.call('ZRANGEBYSCORE', P .. 'nodes', now(), '+inf')
