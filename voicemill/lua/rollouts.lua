-- Rollouts, newest first, and what each revision did. ARGV: most. Returns
-- [rollout (hash), figures of the new revision (hash), of the old one (hash)]...
-- uses: revisions
local found = {}
for _, rollout in ipairs(redis.call('ZREVRANGE', P .. 'rollouts', 0, ARGV[1] - 1)) do
  local fields = redis.call('HMGET', rollout_key(rollout), 'engine', 'revision', 'previous')
  table.insert(found, {
    redis.call('HGETALL', rollout_key(rollout)),
    redis.call('HGETALL', figures_key(fields[1], fields[2])),
    redis.call('HGETALL', figures_key(fields[1], fields[3])),
  })
end
return found
