-- A child is about to load. ARGV: engine, place, seconds it may take. Returns [revision, its options (JSON)]
-- uses: revisions
local engine = ARGV[1]
local revision = revision_for(engine, ARGV[2], now() + tonumber(ARGV[3]))
return {revision, redis.call('HGET', P .. 'revisions:' .. engine, revision) or '{}'}
