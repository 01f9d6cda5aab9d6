-- Let everybody know what a revision of an engine can do. ARGV: engine, revision, capabilities (JSON)
-- uses: revisions
local engine, revision = ARGV[1], ARGV[2]
redis.call('HSET', capabilities_key(engine), revision, ARGV[3])
if deployment_of(engine) == revision or redis.call('HEXISTS', P .. 'engines', engine) == 0 then
  show_capabilities(engine, revision)
end
