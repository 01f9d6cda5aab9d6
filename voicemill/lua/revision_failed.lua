-- A child could not load; where that is the fault of a rollout's revision, the rollout is rolled back.
-- ARGV: engine, place, revision or "" where only its place is known, why. Returns 1 if it was
-- uses: revisions
local engine = ARGV[1]
local _, rollout = deployment_of(engine)
if not rollout then return 0 end
local fields = redis.call('HMGET', rollout_key(rollout), 'status', 'revision', 'previous')
local status = fields[1]
local is_canary = status == 'canary' and redis.call('ZSCORE', canaries_key(engine), ARGV[2])
if status ~= 'promoting' and not is_canary then return 0 end
if ARGV[3] ~= '' and ARGV[3] ~= fields[2] then return 0 end
redis.call('HSET', rollout_key(rollout), 'failed', 1)
roll_back(rollout, engine, fields[3], ARGV[4])
return 1
