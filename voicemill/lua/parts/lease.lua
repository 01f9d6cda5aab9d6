-- The lease of a task that runs.
-- uses: keys

-- Once a lease has run out (nobody was heard of, Redis was away, its clock was set forward) nobody knows how
-- long the task really ran: its tenant pays what was estimated.
local function note_gap(task)
  local ends = redis.call('ZSCORE', P .. 'running', task)
  if ends and tonumber(ends) < now() then redis.call('HDEL', task_key(task), 'started_at') end
end

local function keep_lease(task, seconds)
  note_gap(task)
  redis.call('ZADD', P .. 'running', 'XX', now() + tonumber(seconds), task)
end
