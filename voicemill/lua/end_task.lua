-- Close a task; what it did not start goes back as it was. ARGV: task, token, max attempts,
-- retry seconds
-- uses: failures
return end_task(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
