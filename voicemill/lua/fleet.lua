-- Workers and children heard of lately. Returns [[worker record]..., [child record]..., [draining id]...]
-- uses: fleet
local at = now()
return {
  live_records('workers', 'worker:', at), live_records('children', 'child:', at),
  redis.call('SMEMBERS', P .. 'draining'),
}
