-- Every lane in which items may wait.
-- uses: keys
return all_lanes()
