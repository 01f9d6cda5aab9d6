-- The revisions that are tried with a tenant now, where a child has them. ARGV: tenant
-- Returns engine, revision, engine, revision...
-- uses: revisions
local found = {}
for _, engine in ipairs(redis.call('HKEYS', P .. 'engines')) do
  local revision, tenants = trial_of(engine)
  if revision and has_slots(engine .. '@' .. revision) then
    for _, tenant in ipairs(cjson.decode(tenants)) do
      if tenant == ARGV[1] then
        table.insert(found, engine)
        table.insert(found, revision)
      end
    end
  end
end
return found
