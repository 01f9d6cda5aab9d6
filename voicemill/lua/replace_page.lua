-- Put another body in place of a page of inputs. ARGV: job, page, body
-- uses: keys
local pages = job_key(ARGV[1]) .. ':pages'
if redis.call('HEXISTS', pages, ARGV[2]) == 1 then redis.call('HSET', pages, ARGV[2], ARGV[3]) end
return 1
