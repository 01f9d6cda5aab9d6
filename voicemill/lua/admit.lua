-- Let batches in while slots are free.
-- ARGV: engine, a, b (seconds = a + b * characters), seconds per batch, slots to keep for interactive
-- work, lead seconds, task id... Returns [task, estimated seconds, class]...
-- uses: admission
return admit_as_told(1)
