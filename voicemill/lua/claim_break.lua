-- A child would leave for another revision before its successor is there, as two don't fit.
-- Refused (0) while another of the fleet does; and where nobody else takes work, unless it goes back.
-- ARGV: engine, place, child, seconds it may take
-- uses: revisions
local engine, place, child = ARGV[1], ARGV[2], ARGV[3]
local breaks = P .. 'breaks:' .. engine
local holder = redis.call('GET', breaks)
if holder and holder ~= place then return 0 end
local _, rollout = deployment_of(engine)
local goes_back = rollout and redis.call('HGET', rollout_key(rollout), 'status') == 'rolling_back'
local others = redis.call('ZCOUNT', P .. 'slots:' .. engine, now(), '+inf')
local mine = tonumber(redis.call('ZSCORE', P .. 'slots:' .. engine, child) or 0) > now() and 1 or 0
if others == mine and not goes_back then return 0 end
redis.call('SET', breaks, place, 'PX', math.ceil(ARGV[4] * 1000))
return 1
