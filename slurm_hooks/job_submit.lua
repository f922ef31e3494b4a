--[[
Burst Advisor's job_submit.lua, for a site that has none of its own: copy it and advisor_submit.lua beside
slurm.conf and set JobSubmitPlugins=lua. All it does is load that file and call it. A site with its own
job_submit.lua keeps it and needs only the other file, which says at its head how.
--]]

local function own_directory()
  local source = debug and debug.getinfo(1, "S").source or ""
  local conf = os.getenv("SLURM_CONF") or ""
  return source:match("^@(.*/)[^/]*$") or conf:match("^(.*/)[^/]*$") or "/etc/slurm/"
end

local loaded, advisor = pcall(dofile, own_directory() .. "advisor_submit.lua")
if not loaded then
  slurm.log_error("%s", "advisor hook: jobs are accepted as submitted: " .. tostring(advisor))
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  if loaded then return advisor.submit(job_desc, part_list, submit_uid) end
  return slurm.SUCCESS
end

-- A change that a user makes is accepted as it is. Nothing is set here, for two reasons:
-- an admin_comment set for a plain user makes slurmctld refuse the update, and the control loops compare
-- the job's partition with the advice themselves and leave alone what a user has moved.
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) -- luacheck: no unused args
  return slurm.SUCCESS
end

return slurm.SUCCESS
