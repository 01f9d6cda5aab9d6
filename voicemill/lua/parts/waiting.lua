-- What waits, by engine, by tenant and by job, and how much of it a tenant may have.
-- uses: keys

-- Keep account of what waits, in items and in characters.
local function count_queued(engine, class, items, characters)
  for _, field in ipairs(class == 'interactive' and {engine, engine .. ':interactive'} or {engine}) do
    redis.call('HINCRBY', P .. 'queued_items', field, items)
    redis.call('HINCRBY', P .. 'queued_characters', field, characters)
  end
end

-- Keep account of what a tenant has waiting.
local function count_use(tenant, items, characters)
  redis.call('HINCRBY', use_key(tenant), 'queued_items', items)
  redis.call('HINCRBY', use_key(tenant), 'queued_characters', characters)
end

-- The refusal of so much more to wait where a tenant's caps leave no room for it.
local function check_caps(tenant, items, characters)
  for what, more in pairs({queued_items = items, queued_characters = characters}) do
    local cap = tonumber(redis.call('HGET', tenant_key(tenant), 'max_' .. what))
    local has = tonumber(redis.call('HGET', use_key(tenant), what)) or 0
    if cap and has + more > cap then
      return redis.error_reply(table.concat({'CAP', what, has, more, cap}, ' '))
    end
  end
end

-- Give back what a job that never went live had reserved of its tenant's caps.
local function unreserve(job)
  local fields = redis.call('HMGET', job_key(job), 'tenant', 'reserved_items', 'reserved_characters')
  count_use(fields[1], -fields[2], -fields[3])
end

local function count_waiting_of(job, engine, class, tenant, items, characters)
  count_queued(engine, class, items, characters)
  count_use(tenant, items, characters)
  redis.call('HINCRBY', job_key(job), 'waiting_characters:' .. engine, characters)
end

local function count_waiting(job, engine, items, characters)
  local whose = redis.call('HMGET', job_key(job), 'class', 'tenant')
  count_waiting_of(job, engine, whose[1], whose[2], items, characters)
end
