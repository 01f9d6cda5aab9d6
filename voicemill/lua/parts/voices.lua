-- Keys of enrolled voices and of the prompts that wait to be checked.
-- uses: keys

local function voices_key(tenant) return P .. 'voices:' .. tenant end
local function unlisted_key(tenant) return P .. 'unlisted:' .. tenant end
local function voice_key(tenant, name) return P .. 'voice:' .. tenant .. ':' .. name end
local function voice_jobs_key(tenant, name) return P .. 'voice_jobs:' .. tenant .. ':' .. name end
local function upload_key(token) return P .. 'upload:' .. token end
