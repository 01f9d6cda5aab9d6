-- Incarnations of workers that are alive.
return redis.call('ZRANGEBYSCORE', P .. 'nodes', now(), '+inf')
