-- ARGV: engine or engine/voice, characters, seconds, decay
-- uses: costs
observe_cost(ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
return 1
