-- Close a task and let in what its slot is free for now: one script, so that Redis waits for its disk once.
-- ARGV: task, token, max attempts, retry seconds, and those of admit. Returns the same as admit
-- uses: admission, failures
end_task(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return admit_as_told(5)
