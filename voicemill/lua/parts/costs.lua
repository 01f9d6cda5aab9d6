-- What texts cost, measured and estimated, as costs.py has it.
-- uses: keys

-- Fold one measurement of an engine, or of one of its voices, into the decaying sums that costs.py fits.
local function observe_cost(name, x, y, decay)
  local key = P .. 'costs:' .. name
  local sums = redis.call('HMGET', key, 'n', 'x', 'y', 'xx', 'xy')
  local adds = {1, x, y, x * x, x * y}
  local fields = {}
  for i, sum in ipairs({'n', 'x', 'y', 'xx', 'xy'}) do
    table.insert(fields, sum)
    table.insert(fields, string.format('%.9g', (tonumber(sums[i]) or 0) * decay + adds[i]))
  end
  redis.call('HSET', key, unpack(fields))
end

local MEASURED_ENOUGH = 5

-- The line costs.py would fit: base and slope; nothing while too little was measured.
local function fit_cost(name)
  local sums = redis.call('HMGET', P .. 'costs:' .. name, 'n', 'x', 'y', 'xx', 'xy')
  if not sums[1] or tonumber(sums[1]) < MEASURED_ENOUGH or tonumber(sums[2]) <= 0 then return nil end
  local n, x, y, xx, xy = unpack(sums)
  local spread = n * xx - x * x
  if spread <= 1e-9 * n * xx then return 0, xy / xx end
  local slope = (n * xy - x * y) / spread
  local base = (y - slope * x) / n
  if slope < 0 then return y / n, 0 end
  if base < 0 then return 0, xy / xx end
  return base, slope
end
