-- What the revisions of an engine do while one replaces another.
-- uses: revisions

local function count_attempt(engine, revision, code, audio_seconds, device_seconds)
  local figures = figures_key(engine_of(engine), revision)
  redis.call('HINCRBY', figures, 'attempts', 1)
  if code then
    redis.call('HINCRBY', figures, 'failed:' .. code, 1)
  else
    redis.call('HINCRBYFLOAT', figures, 'audio_seconds', audio_seconds)
    redis.call('HINCRBYFLOAT', figures, 'device_seconds', device_seconds)
  end
end
