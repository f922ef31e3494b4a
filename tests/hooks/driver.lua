-- Runs job_submit.lua as slurmctld would, with the real lua-socket: one submission a line on stdin.
-- usage: lua5.1 driver.lua HOOK ; each line is a job name; prints what was set, tab-separated, and the time.
local socket = require("socket")
local logged = {}
local function log(_, text) logged[#logged + 1] = text end
slurm = {
  SUCCESS = 0, NICE_OFFSET = 2147483648,
  log_info = log, log_error = log, log_user = function(_, text) logged[#logged + 1] = "user: " .. text end,
}
dofile(arg[1])
local part = {flag_default = 0, max_time = 4294967295, default_time = 4294967294, state_up = 3}
local onprem = setmetatable({flag_default = 1}, {__index = part})
for name in io.lines() do
  local changes = {}
  local job = setmetatable({}, {
    __index = {user_id = 0, user_name = "alice", group_id = 0, het_job_offset = 4294967294, min_cpus = 2,
               time_limit = 60, script = "#!/bin/sh\n", name = name},
    __newindex = function(_, key, value) changes[#changes + 1] = key .. "=" .. tostring(value) end,
  })
  logged = {}
  local start = socket.gettime()
  local code = slurm_job_submit(job, {onprem = onprem, burst = part}, 0)
  local seconds = socket.gettime() - start
  local done, said = table.concat(changes, " "), table.concat(logged, "; ")
  io.write(("%d\t%.6f\t%s\t%s\n"):format(code, seconds, done, said))
  io.flush()
end
