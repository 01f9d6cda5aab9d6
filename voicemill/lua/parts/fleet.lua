-- Who was heard of lately.
-- uses: keys

-- Records of the workers or children that were heard of lately.
local function live_records(set, prefix, at)
  local found = {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. set, at, '+inf')) do
    local record = redis.call('GET', P .. prefix .. id)
    if record then table.insert(found, record) end
  end
  return found
end
