-- Begin to replace the revision in use. ARGV: rollout, engine, revision, options (JSON, or "" for a revision
-- that is known), children, percent (one of them is ""), tenants (JSON), rule (JSON or "")
-- Errors: NOENGINE, GOESON and the rollout, SAME, KNOWN, UNKNOWN, FEW
-- uses: revisions
local rollout, engine, revision, options = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local revisions = P .. 'revisions:' .. engine
if redis.call('HEXISTS', P .. 'engines', engine) == 0 then return redis.error_reply('NOENGINE') end
local current, other = deployment_of(engine)
if other then return redis.error_reply('GOESON ' .. other) end
if revision == current then return redis.error_reply('SAME') end
local known = revision == BASE and '{}' or redis.call('HGET', revisions, revision)
if options == '' and not known then return redis.error_reply('UNKNOWN') end
if options ~= '' and known and known ~= options then return redis.error_reply('KNOWN') end
if ARGV[7] ~= '[]' and redis.call('ZCOUNT', places_key(engine), now(), '+inf') < 2 then
  return redis.error_reply('FEW')
end
if options ~= '' then redis.call('HSET', revisions, revision, options) end
if ARGV[7] ~= '[]' then note_lane(engine .. '@' .. revision) end
redis.call('DEL', canaries_key(engine), apart_key(engine), figures_key(engine, current), figures_key(engine, revision))
redis.call('HSET', rollout_key(rollout), 'schema', 1, 'id', rollout, 'engine', engine, 'revision', revision,
  'options', options ~= '' and options or known, 'previous', current, 'status', 'canary', 'children', ARGV[5],
  'percent', ARGV[6], 'tenants', ARGV[7], 'rule', ARGV[8], 'created_at', stamp())
redis.call('HSET', deployment_key(engine), 'current', current, 'rollout', rollout)
redis.call('ZADD', P .. 'rollouts', redis.call('INCR', P .. 'rollout_seq'), rollout)
