-- End an attempt without audio. Returns what the item is now, or nothing to whoever no longer holds it.
-- ARGV: task, token, index, outcome (failed, returned, cancelled), error (JSON), max attempts, and retry
-- seconds, or those of the pause; to fail: "redraw" where other seeds may help
-- uses: failures
local task, index, outcome = ARGV[1], tonumber(ARGV[3]), ARGV[4]
local job, engine, entry, state = hold(task, ARGV[2], index)
if not job then return nil end
local ending = stopped_as(job)
local failure = cjson.decode(ARGV[5])
if ending or outcome == 'cancelled' then
  end_state(job, index, state, ending or 'cancelled', engine, '')
elseif outcome == 'returned' then
  state.attempts = state.attempts - 1
  state.error = failure ~= cjson.null and failure or nil
  move_item(job, index, state, 'queued')
  requeue(job, engine, entry, parse(entry).alone, tonumber(ARGV[7]))
else
  if ARGV[8] == 'redraw' then state.draws = (state.draws or 0) + 1 end
  fail_attempt(job, engine, entry, state, failure, tonumber(ARGV[6]), tonumber(ARGV[7]))
end
settle(job)
return state.status
