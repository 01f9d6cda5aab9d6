-- Move a rollout on. ARGV: rollout, promote, roll_back or end, and why. Returns 1, or 0 where it is not so far
-- uses: revisions
local rollout, action, reason = ARGV[1], ARGV[2], ARGV[3]
local fields = redis.call('HMGET', rollout_key(rollout), 'status', 'engine', 'revision', 'previous', 'failed')
local status, engine = fields[1], fields[2]
if action == 'promote' and status == 'canary' then
  redis.call('HSET', rollout_key(rollout), 'status', 'promoting', 'promoted_at', stamp(), 'reason', reason)
  redis.call('HSET', deployment_key(engine), 'current', fields[3])
  redis.call('DEL', canaries_key(engine))
  show_capabilities(engine, fields[3])
elseif action == 'roll_back' and (status == 'canary' or status == 'promoting') then
  roll_back(rollout, engine, fields[4], reason)
elseif action == 'end' and (status == 'promoting' or status == 'rolling_back') then
  local ending = status == 'promoting' and 'completed' or fields[5] and 'failed' or 'rolled_back'
  redis.call('HSET', rollout_key(rollout), 'status', ending, 'ended_at', stamp())
  redis.call('HDEL', deployment_key(engine), 'rollout')
  measure('voicemill_rollouts_total', 'engine=' .. engine .. ',status=' .. ending, 1)
else
  return 0
end
return 1
