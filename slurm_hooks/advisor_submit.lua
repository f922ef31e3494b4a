--[[
Burst Advisor's part of job_submit: asks `advisor serve` where a job should start, and never lets the
answer, or its absence, hurt a submission.

A module: it sets no global variable and returns a table of functions. Copy it beside slurm.conf. The
job_submit.lua that comes with it loads it; a site that has its own job_submit.lua ends it with

  local loaded, advisor = pcall(dofile, "/etc/slurm/advisor_submit.lua")
  if loaded then slurm_job_submit = advisor.around(slurm_job_submit) end

Lua 5.1 to 5.4; needs lua-socket only. Settings: `advisor_hook.conf` beside this file, `key = value` lines
(see DEFAULTS). slurmctld looks at the time of job_submit.lua only, so `touch` that after a change of this
file or of its settings.

slurmctld holds locks while this runs. Therefore:
 * one exchange, connecting included, never takes longer than `budget_ms`;
 * after `breaker_failures` failures in a row none waits any more: every `breaker_seconds` one question is
   left with the server, and only when its answer has arrived is a job's question waited for again;
 * whatever goes wrong, the job is accepted as it was submitted (Slurm 26.05 rejects a job whose hook
   raises an error, so everything runs inside pcall, and fields are set last, all or none);
 * what the user said explicitly stays; heterogeneous jobs are not touched at all;
 * nothing is set that could not be checked: see `fits` and `configured_at`.
--]]

local PROTOCOL = 1
local ANSWER_BYTES = 16384  -- longest answer read
local REQUEST_BYTES = 61440 -- longest request sent; the server reads 65536
local DECISIVE_BYTES = 16384 -- a longer comment or constraint might hide an opt-out: job left alone
local COSMETIC_BYTES = 256  -- names are cut to this

local DEFAULTS = {
  socket = "/run/advisor/submit.sock",
  budget_ms = 50,
  breaker_failures = 2,
  breaker_seconds = 10,
  enabled = true,
}
local LIMITS = {budget_ms = {1, 500}, breaker_failures = {1, 1000}, breaker_seconds = {0.1, 3600}}

local SUCCESS = slurm.SUCCESS or 0
local find, match = string.find, string.match
local floor, min = math.floor, math.min

-- Logging must not be able to fail either.
local function log(level, text)
  pcall(function() slurm["log_" .. level]("%s", "advisor hook: " .. text) end)
end

-- ---------------------------------------------------------------------------------- settings

local function own_directory()
  local source = debug and debug.getinfo(1, "S").source or ""
  local directory = source:match("^@(.*/)[^/]*$")
  if not directory then directory = (os.getenv("SLURM_CONF") or ""):match("^(.*/)[^/]*$") end
  return directory or "/etc/slurm/"
end

local function read_setting(settings, key, value)
  local default, limits = DEFAULTS[key], LIMITS[key]
  if default == nil then
    log("info", "unknown setting " .. key .. " ignored")
  elseif type(default) == "boolean" then
    settings[key] = not (" false no off 0 "):find(" " .. value:lower() .. " ", 1, true)
  elseif limits then
    local number = tonumber(value)
    if number and number >= limits[1] and number <= limits[2] then
      settings[key] = number
    else
      log("error", ("%s must be %g to %g; using %g"):format(key, limits[1], limits[2], default))
    end
  else
    settings[key] = value
  end
end

local function read_settings()
  local settings = {}
  for key, value in pairs(DEFAULTS) do settings[key] = value end
  pcall(function()
    local file = io.open(own_directory() .. "advisor_hook.conf")
    if not file then return end
    for line in file:lines() do
      local key, value = line:gsub(" #.*", ""):match("^%s*([%w_]+)%s*=%s*(.-)%s*$")
      if key then read_setting(settings, key, value) end
    end
    file:close()
  end)
  return settings
end

local settings = read_settings()
local has_socket, socket = pcall(require, "socket")
local has_unix, unix = pcall(require, "socket.unix")
if not (has_socket and has_unix) then log("error", "lua-socket is missing: no job gets advice") end

-- ------------------------------------------------------------------------------ the two lines

-- The question is one line of JSON. What JSON escapes in it:
local ESCAPES = {['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t"}

local function escaped(char)
  return ESCAPES[char] or ("\\u%04x"):format(char:byte())
end

-- The answer is one line of fields by place, without quotes and escapes; "" is a field that is not to be set.
-- One match tells that it is whole and free of control characters. A newer server may say more at the end.
local TEXT, SIGNED, COUNT = "\t([^%c]*)", "\t(%-?%d*)", "\t(%d*)"
local ANSWER = "^(%d+)" .. COUNT .. TEXT:rep(4) .. SIGNED .. COUNT:rep(2) .. TEXT:rep(2) .. "[\t\n]"

local function unless_empty(value)
  if value ~= "" then return value end
  return nil
end

local reply = {} -- one table for all: see `parts`

local function decode(line)
  local v, seq, refusal, partition, features, prefer, site_factor, nice, _, message, admin_comment
    = match(line, ANSWER)
  if not v or site_factor == "-" then return nil end
  reply.v, reply.seq, reply.refusal = tonumber(v), tonumber(seq), unless_empty(refusal)
  reply.partition, reply.features = unless_empty(partition), unless_empty(features)
  reply.prefer = unless_empty(prefer)
  reply.site_factor, reply.nice = tonumber(site_factor), tonumber(nice) -- of "" it is nil
  reply.message, reply.admin_comment = unless_empty(message), unless_empty(admin_comment)
  return reply
end

-- ------------------------------------------------------------------- one bounded exchange

local gettime = has_socket and socket.gettime

local connection -- kept between submissions: 20 us instead of 200 us a question

local function drop()
  if connection then pcall(connection.close, connection) end
  connection = nil
end

local BUDGET = settings.budget_ms / 1000

-- seconds left, never more than the budget even when the clock is set back; nil: time is up
local function remaining(deadline)
  local left = min(deadline - gettime(), BUDGET)
  if left <= 0 then return nil end
  return left
end

-- A call's timeout on a kept connection, of which most need no other: lua-socket counts it from the beginning
-- of each call, and setting it costs a submission with cold caches as much as the call itself.
local MAX_SECONDS = 0.98 * BUDGET

local function connect(deadline)
  local left = remaining(deadline)
  if not left then return nil, "timeout" end
  local client = (unix.stream or unix)()
  client:settimeout(left, "t")
  local ok, err = client:connect(settings.socket)
  if not ok then
    client:close()
    return nil, err
  end
  client:settimeout(MAX_SECONDS, "t")
  return client
end

-- so many bytes, before the deadline
local function receive(client, count, deadline)
  local left, rest = deadline - gettime(), nil
  if left >= MAX_SECONDS and left <= BUDGET then
    local text, err, partial = client:receive(count)
    if text or err ~= "timeout" then return text, err, partial end
    rest = partial or "" -- and what is left of the budget is waited for as well
    count = count - #rest
  end
  left = remaining(deadline)
  if not left then return nil, "timeout", rest end
  client:settimeout(left, "t")
  local text, err, partial = client:receive(count)
  client:settimeout(MAX_SECONDS, "t")
  if text and rest then text = rest .. text end
  return text, err, partial
end

-- "=" and five digits say how long the line is that follows: nothing beyond it is read
local function receive_answer(client, deadline)
  local head, err = receive(client, 6, deadline)
  if not head then return nil, err end
  local size = tonumber(match(head, "^=(%d%d%d%d%d)$"))
  if not size then return nil, "not an answer" end
  if size > ANSWER_BYTES then return nil, "answer too long" end
  local line
  line, err = receive(client, size, deadline)
  if line and find(line, "\n", 1, true) ~= size then return nil, "more than one line" end
  return line, err
end

local function exchange(line)
  local deadline = gettime() + BUDGET
  local left = BUDGET
  while true do
    local kept, err, received = connection ~= nil, nil, nil
    if not kept then
      connection, err = connect(deadline)
      left = remaining(deadline)
    end
    if not connection then return nil, err end
    if left then
      if left < MAX_SECONDS then connection:settimeout(left, "t") end
      local sent, failure = connection:send(line)
      if sent then received, err = receive_answer(connection, deadline) else err = failure end
    else
      err = "timeout"
    end
    if received then return received end
    drop() -- never reuse a connection on which an answer may still arrive
    -- a kept connection that the server closed (it was restarted) is opened again, once
    if not kept or err ~= "closed" and not tostring(err):find("[Pp]ipe") then return nil, err end
  end
end

-- --------------------------------------------------------------------------------- breaker

local breaker = {failures = 0, retry_at = 0, failed = 0, skipped = 0}

local probe -- a connection on which a question was left that no submission waits for

local function drop_probe()
  if probe then pcall(probe.close, probe) end
  probe = nil
end

-- Whether a job's question may be waited for: the breaker is closed, or what was left has been answered.
function breaker.allows()
  if breaker.failures < settings.breaker_failures then return true end
  if not probe then return false end
  local answered, err = probe:receive(1)
  if answered or err ~= "timeout" then drop_probe() end
  return answered ~= nil
end

-- Time to leave another question with a server that did not answer, or the clock was set
function breaker.is_probe_due()
  breaker.skipped = breaker.skipped + 1
  local left = breaker.retry_at - gettime()
  return not probe and (left <= 0 or left > settings.breaker_seconds)
end

-- Leaves a question without waiting: a server that hangs costs a probe nothing, neither does a full backlog.
function breaker.leave(line)
  breaker.retry_at = gettime() + settings.breaker_seconds
  probe = (unix.stream or unix)()
  probe:settimeout(0, "t")
  if not (probe:connect(settings.socket) and probe:send(line)) then drop_probe() end
end

function breaker.failure(reason)
  breaker.failures = breaker.failures + 1
  breaker.failed = breaker.failed + 1
  if breaker.failures >= settings.breaker_failures then
    breaker.retry_at = gettime() + settings.breaker_seconds
  end
  local state = breaker.failures >= settings.breaker_failures and ", breaker open" or ""
  log("info", ("no advice (%s), failure %d in a row%s"):format(tostring(reason), breaker.failures, state))
end

function breaker.success()
  if breaker.failures >= settings.breaker_failures then log("info", "advisor answers again") end
  breaker.failures, breaker.failed, breaker.skipped = 0, 0, 0
end

-- ---------------------------------------------------------------------- describing the job

-- Slurm's "not set" depends on the field's width: 65534 is a number of processors, but no cpus_per_task
local UNSET_FROM = {[16] = 65534, [32] = 4294967294, [64] = 2 ^ 53}
local INFINITE = 4294967295

local function number(value, bits)
  if type(value) ~= "number" or value ~= value or value < 0 or value >= UNSET_FROM[bits] then return nil end
  return floor(value)
end

local function text(value)
  if type(value) == "string" and value ~= "" then return value end
  return nil
end

-- Time limit that will hold when the user gave none, minutes
local function partition_limit(partition)
  if not partition then return nil end
  return number(partition.default_time, 32) or number(partition.max_time, 32)
end

-- What is asked for besides processors and memory: since 23.11 sbatch says `-c 4` as tres_per_task=cpu=4 too
local function besides_processors(tres)
  tres = text(tres)
  if not tres then return nil end
  for part in tres:gmatch("[^,]+") do
    local kind = part:match("^%s*(%a+)[=:]")
    if kind ~= "cpu" and kind ~= "mem" then return tres end
  end
  return nil
end

-- It goes round, so that its words are kept as well (`as_text`); no connection outlives a failure, on which
-- an older answer could arrive.
local MAX_SEQUENCE = 500
local sequence = 0

-- The request under way. One table for all: a new one each time is work for the garbage collector of
-- slurmctld's Lua, which has all of its job records to look through.
local parts, count, too_long = {}, 0, nil
local asked = {} -- what of it `fits` looks at once more

-- Fields that are sent as they are, looked at in one loop: with cold caches a submission pays for each line
-- of program that it comes by. Slurm's name; ours; from where on the number means "not set".
local NUMBERS = {
  "user_id", ',"uid":', UNSET_FROM[32],
  "group_id", ',"gid":', UNSET_FROM[32],
  "num_tasks", ',"num_tasks":', UNSET_FROM[32],
  "cpus_per_task", ',"cpus_per_task":', UNSET_FROM[16],
  "ntasks_per_node", ',"ntasks_per_node":', UNSET_FROM[16],
  "min_mem_per_cpu", ',"memory_per_cpu":', UNSET_FROM[64],
  "min_mem_per_node", ',"memory_per_node":', UNSET_FROM[64],
  "time_limit", ',"time_limit":', UNSET_FROM[32],
  "min_cpus", ',"min_cpus":', UNSET_FROM[32],
  "min_nodes", ',"min_nodes":', UNSET_FROM[32],
  "max_nodes", ',"max_nodes":', UNSET_FROM[32],
  "pn_min_cpus", ',"min_cpus_per_node":', UNSET_FROM[16],
  "pn_min_tmp_disk", ',"tmp_disk":', UNSET_FROM[32],
}
-- How a node is built, where a job asks for more than one of each; every node has one.
local LAYOUT = {"cores_per_socket", "sockets_per_node", "threads_per_core", "ntasks_per_socket"}
-- Slurm's name; ours; whether it may hold a word that decides.
local TEXTS = {
  "user_name", ',"user":"', false,
  "name", ',"name":"', false,
  "comment", ',"comment":"', true,
  "features", ',"features":"', true,
  "prefer", ',"prefer":"', true,
  "licenses", ',"licenses":"', false,
  "reservation", ',"reservation":"', false,
  "dependency", ',"dependency":"', false,
  "req_nodes", ',"req_nodes":"', false,
  "burst_buffer", ',"burst_buffer":"', false,
  "array_inx", ',"array":"', true,
}

-- Numbers as text, kept: most come again, and writing one costs the cold half of printf.
local MAX_WRITTEN = 2000
local written, kept = {}, 0

local function as_text(value)
  local said = written[value]
  if said then return said end
  if kept == MAX_WRITTEN then written, kept = {}, 0 end
  -- "%.0f": Lua 5.3+ refuses "%d" for a float, Lua 5.1 prints big numbers in exponent form
  said = ("%.0f"):format(value)
  written[value], kept = said, kept + 1
  return said
end

local function put(fragment)
  count = count + 1
  parts[count] = fragment
end

local function put_number(key, value)
  parts[count + 1], parts[count + 2] = key, as_text(value)
  count = count + 2
end

-- The key brings the opening quote.
local function put_text(key, value, is_decisive)
  if is_decisive then
    if #value > DECISIVE_BYTES then too_long = key:match("%l+") end
  elseif #value > COSMETIC_BYTES then
    value = value:sub(1, COSMETIC_BYTES)
  end
  if find(value, '[%c"\\]') then value = value:gsub('[%c"\\]', escaped) end
  parts[count + 1], parts[count + 2], parts[count + 3] = key, value, '"'
  count = count + 3
end

local function asks_layout(job)
  for i = 1, #LAYOUT do
    if (number(job[LAYOUT[i]], 16) or 0) > 1 then return true end
  end
  return false
end

-- With --spread-job slurmctld sets max_nodes itself, after the hook: a node for each task
local function is_spread(job)
  local bit = number(slurm.SPREAD_JOB, 64)
  return bit and floor((number(job.bitflags, 64) or 0) / bit) % 2 == 1
end

local function generic_resources(job)
  local of_nodes = besides_processors(job.tres_per_node)
  if not of_nodes then
    of_nodes = besides_processors(job.tres_per_job)
    local is_wide = (asked.min_nodes or 1) > 1 or (asked.num_tasks or 1) > (asked.ntasks_per_node or INFINITE)
    if of_nodes and is_wide then of_nodes = "of all nodes: " .. of_nodes end
  end
  -- with processors or memory for each of them (--cpus-per-gpu) a node needs more than is known here
  -- --ntasks-per-gpu asks for them by itself
  local has_tasks = (number(job.ntasks_per_tres, 16) or 0) > 0
  local has_own = of_nodes and (text(job.cpus_per_tres) or text(job.mem_per_tres))
  if of_nodes and not (has_own or has_tasks) then return of_nodes end
  local of_parts = besides_processors(job.tres_per_task) or besides_processors(job.tres_per_socket)
  of_parts = of_parts or of_nodes or has_tasks and "gpu"
  return of_parts and "not by node alone: " .. of_parts
end

local default_name -- of the partition that was the default last time: there is one at most

local function default_partition(part_list)
  local last = default_name and part_list[default_name]
  if last and last.flag_default == 1 then return default_name, last end
  for name, partition in pairs(part_list) do
    if partition.flag_default == 1 then
      default_name = name
      return name, partition
    end
  end
  return nil
end

-- What the user of the job under way had said before the site's own rules changed it (`before`)
local words = {}

-- Where the job will go if it is not moved, and the limit that will hold there; both only where they matter.
-- A partition that the site's rules gave it is no word of its user's: it is its default.
local function put_partition(job, part_list)
  local partition = text(job.partition)
  local its_own = partition and (part_list[partition] or part_list[match(partition, "^[^,]*")])
  if partition then
    local is_routed = words.job == job and not words.partition
    put_text(is_routed and ',"default_partition":"' or ',"partition":"', partition, true)
  end
  if not partition or not asked.time_limit and not its_own then
    local name, default = default_partition(part_list)
    its_own = its_own or default
    if not partition and name then put_text(',"default_partition":"', name, true) end
  end
  local limit
  if asked.is_endless then
    limit = its_own and number(its_own.max_time, 32)
  elseif not asked.time_limit then
    limit = partition_limit(its_own)
    if its_own then asked.home_limit = limit or INFINITE end
  end
  if limit then put_number(',"partition_time_limit":', limit) end
end

-- Since when slurmctld has run with the configuration it has now, as far as can be told from here: no advice
-- from an older picture of the cluster may be followed, for it may name what slurm.conf has dropped since. A
-- slurmctld that was restarted, and from 23.11 on one that was told `scontrol reconfigure`, loads this file
-- anew. An older one keeps it, but makes its records of all partitions anew while the old ones are still
-- there, so their addresses differ. A partition met for the first time may be new.
local records, watched = {}, nil -- address by partition; the partition looked at, one is enough
local configured_at = 0 -- whole seconds, rounded up

local function note_configuration()
  configured_at = floor(gettime and gettime() or os.time()) + 1
end

local function look_at_configuration(part_list)
  if configured_at > gettime() + 1 then note_configuration() end -- the clock was set back
  local partition = watched and part_list[watched]
  if not partition then watched, partition = next(part_list) end
  if not partition then return end
  local meta = getmetatable(partition)
  local record = meta and meta._part_rec_ptr
  if record == records[watched] then return end
  if records[watched] then records = {} end
  records[watched] = record
  note_configuration()
end

local HEAD = ('{"v":%d,"op":"advise","seq":'):format(PROTOCOL)

-- A submission as one line, or nil and what is too long in it. Every name costs slurmctld a search through
-- its hundred field names, so each is read once, and only what the server looks at.
local function describe(job, part_list)
  sequence = sequence % MAX_SEQUENCE + 1
  parts[1], parts[2] = HEAD, as_text(sequence)
  count, too_long = 2, nil
  asked.time_limit, asked.home_limit, asked.min_cpus, asked.min_nodes = nil, nil, nil, nil
  asked.min_mem_per_cpu, asked.min_mem_per_node, asked.is_endless = nil, nil, nil
  asked.num_tasks, asked.ntasks_per_node, asked.max_nodes = nil, nil, nil
  for i = 1, #NUMBERS, 3 do
    local name, unset = NUMBERS[i], NUMBERS[i + 2]
    local value = job[name]
    if value ~= nil and value ~= unset and type(value) == "number" and value >= 0 and value < unset then
      value = floor(value)
      asked[name] = value
      put_number(NUMBERS[i + 1], value)
    elseif value == INFINITE and name == "time_limit" then
      asked.is_endless = true
    end
  end
  if not asked.max_nodes and (asked.num_tasks or 1) > 1 and is_spread(job) then
    asked.max_nodes = asked.num_tasks
    put_number(',"max_nodes":', asked.max_nodes)
  end
  for i = 1, #TEXTS, 3 do
    local value = job[TEXTS[i]]
    if value ~= nil and text(value) then put_text(TEXTS[i + 1], value, TEXTS[i + 2]) end
  end
  asked.account = text(job.account) or text(job.default_account)
  if asked.account then put_text(',"account":"', asked.account) end
  asked.qos = text(job.qos) or text(job.default_qos)
  if asked.qos then put_text(',"qos":"', asked.qos) end
  local resources = generic_resources(job)
  if resources then put_text(',"generic_resources":"', resources) end
  put_partition(job, part_list)
  if job.shared == 0 then put(',"whole_nodes":true') end -- --exclusive
  if asks_layout(job) then put(',"layout":true') end
  if number(job.threads_per_core, 16) == 1 then put(',"whole_cores":true') end -- --hint=nomultithread
  local requeue = number(job.requeue, 16)
  if requeue then put(requeue == 0 and ',"requeue":false' or ',"requeue":true') end
  local begin = number(job.begin_time, 64)
  if begin and begin > 0 then put_number(',"begin_time":', begin) end
  if number(job.priority, 32) == 0 then put(',"held":true') end
  if job.script == nil then put(',"interactive":true') end
  put_number(',"configured_at":', configured_at)
  if breaker.failed > 0 then put_number(',"hook_failed":', breaker.failed) end
  if breaker.skipped > 0 then put_number(',"hook_skipped":', breaker.skipped) end
  if too_long then return nil, too_long .. " too long" end
  put("}\n")
  local line = table.concat(parts, "", 1, count)
  if #line > REQUEST_BYTES then return nil, "request too long" end
  return line
end

-- ------------------------------------------------------------------------ judging the answer

local FEATURES = "^[%w_.:=&|,%-%[%]()*]+$"
local TEXT_LIMITS = { -- most bytes, and what they may be
  "partition", 256, "^[%w_.,+-]+$",
  "features", 512, FEATURES,
  "prefer", 512, FEATURES,
  "admin_comment", 4096, false,
  "message", 512, false,
}
local NUMBER_LIMITS = {
  "site_factor", -2000000000, 2000000000,
  "nice", 0, 2000000000, -- only ever later in the queue: that is what anybody may ask for
}

-- which field of an answer cannot be set, among those that the hook knows; others are for newer hooks
local function unfit_field(answer)
  for i = 1, #TEXT_LIMITS, 3 do
    local value, pattern = answer[TEXT_LIMITS[i]], TEXT_LIMITS[i + 2]
    if value and (#value > TEXT_LIMITS[i + 1] or pattern and not find(value, pattern)) then
      return TEXT_LIMITS[i]
    end
  end
  for i = 1, #NUMBER_LIMITS, 3 do
    local value = answer[NUMBER_LIMITS[i]]
    if value and (value < NUMBER_LIMITS[i + 1] or value > NUMBER_LIMITS[i + 2]) then
      return NUMBER_LIMITS[i]
    end
  end
  return nil
end

-- nil, or why an answer is none to the question asked: that is a failure of the server's
local function fault_of(answer)
  if answer.v ~= PROTOCOL then return "protocol version" end
  if answer.seq ~= sequence then return answer.refusal or "answer to another question" end
  return nil
end

local function is_listed(list, name)
  return ("," .. list:lower() .. ","):find("," .. name:lower() .. ",", 1, true) ~= nil
end

-- whether a partition's lists let an account or a QOS in; one that is not known is let in by no list
local function admits(name, allowed, denied)
  allowed, denied = text(allowed), text(denied)
  if allowed and allowed:lower() ~= "all" and not (name and is_listed(allowed, name)) then return false end
  return not denied or name ~= nil and not is_listed(denied, name)
end

local function over(wanted, partition, name)
  local limit = wanted and number(partition[name], 32)
  return limit and wanted > limit
end

-- The same of memory, of which slurmctld shows 0 where there is no limit
local function over_memory(wanted, partition, name)
  return wanted and (number(partition[name], 64) or 0) > 0 and over(wanted, partition, name)
end

local function is_over_limits(partition)
  if over(asked.time_limit or asked.home_limit, partition, "max_time")
    or over(asked.min_cpus, partition, "total_cpus") or over(asked.min_nodes, partition, "max_nodes")
    or over(asked.min_nodes, partition, "total_nodes")
    or over(asked.max_nodes, partition, "max_nodes") -- slurmctld never starts `-N2-4` above it
    or over_memory(asked.min_mem_per_cpu, partition, "max_mem_per_cpu")
    or over_memory(asked.min_mem_per_node, partition, "max_mem_per_node") then
    return true
  end
  if asked.is_endless and number(partition.max_time, 32) then return true end
  local fewest = number(partition.min_nodes, 32) or 0
  return fewest > 1 and (asked.max_nodes or fewest) < fewest
end

-- Whether each partition that the user chose is too short for the job. Where it is, sbatch refuses the job,
-- or it waits for ever: it could never come home. A QOS that the user named may lift that limit.
local function is_too_long_here(job, part_list)
  local named = text(job.partition) or default_partition(part_list)
  if text(job.qos) or not named then return false end
  for name in named:gmatch("[^,]+") do
    local limit = part_list[name] and number(part_list[name].max_time, 32)
    if not limit or not asked.is_endless and (asked.time_limit or 0) <= limit then return false end
  end
  return true
end

-- Names of nodes without their numbers, which may stand within: rack1-node2 is one of rack[1-4]-node[1-9]
local function kinds_of(nodes)
  local found = {}
  for name in nodes:gsub("%[[^%]]*%]", ""):gmatch("[^,]+") do found[name:gsub("%d+", "")] = true end
  return found
end

-- Whether a job excludes nodes that are named as some of a partition's are
local function excludes(job, partition)
  local excluded = text(job.exc_nodes)
  if not excluded then return false end
  local there = kinds_of(text(partition.nodes) or "")
  for kind in pairs(kinds_of(excluded)) do
    if there[kind] then return true end
  end
  return false
end

-- Would slurmctld reject or park the job there? Then it stays where it is.
local function fits(job, partition, name)
  if not partition then return false, "partition " .. name .. " is not open to this user" end
  if number(partition.state_up, 32) ~= 3 then return false, "partition " .. name .. " is not up" end
  if is_over_limits(partition) then
    return false, "job is over the limits of partition " .. name
  end
  if number(job.reboot, 16) == 1 then return false, "job wants its nodes booted anew" end
  if excludes(job, partition) then
    return false, "job excludes nodes of partition " .. name .. ", or nodes named like them"
  end
  -- from 23.02 on the lists hold for accounts below those named as well, which only the server knows
  if not admits(asked.account, partition.allow_accounts, partition.deny_accounts) then
    return false, "partition " .. name .. " does not take this account"
  end
  if not admits(asked.qos, partition.allow_qos, partition.deny_qos) then
    return false, "partition " .. name .. " does not take this QOS"
  end
  if not admits(text(job.alloc_node), partition.allow_alloc_nodes) then
    return false, "partition " .. name .. " does not take jobs from this host"
  end
  return true
end

-- Every name of a list; a list with an empty name in it is no list
local function fits_all(job, part_list, partitions)
  if part_list[partitions] then return fits(job, part_list[partitions], partitions) end
  for name in (partitions .. ","):gmatch("([^,]*),") do
    local possible, reason = fits(job, part_list[name], name)
    if not possible then return false, reason end
  end
  return true
end

-- A moved job's limit where its user gave none: that of the partition from which it moves. `advisor control`
-- raises a user's own once the job runs there. Here a longer one might be above the MaxWall of the job's QOS,
-- or end after its --deadline, and the job would be lost.
local function limit_there(part_list, answer)
  local there, limit = answer.partition and part_list[answer.partition], asked.home_limit
  return there and limit ~= (partition_limit(there) or INFINITE) and limit or nil
end

-- A constraint of the user's may only be narrowed, and Slurm uses --prefer instead of the constraint
local function may_require(job, features)
  local own = text(job.features)
  return not text(job.prefer) and (not own or features:sub(1, #own + 1) == own .. "&")
end

local changes, last = {}, 0 -- name, value, name, value; one table for all: see `parts`

local function change(name, value)
  changes[last + 1], changes[last + 2] = name, value
  last = last + 2
end

-- what to set, in order; what the user set himself is not in it
local function gather_changes(job, part_list, answer)
  last = 0
  if answer.partition then change("partition", answer.partition) end
  if answer.features then change("features", answer.features) end
  if answer.prefer and not text(job.prefer) then change("prefer", answer.prefer) end
  local own = answer.site_factor and (job.site_factor or UNSET_FROM[32]) -- one of the site's may be below 0
  if own == UNSET_FROM[32] then change("site_factor", answer.site_factor) end
  if answer.nice and answer.nice > 0 and not number(job.nice, 32) then
    change("nice", slurm.NICE_OFFSET + answer.nice)
  end
  if answer.admin_comment and not text(job.admin_comment) then
    change("admin_comment", answer.admin_comment)
  end
  local limit = limit_there(part_list, answer)
  if limit then change("time_limit", limit) end
end

-- ---------------------------------------------------------------------------------- the hook

local function ask(job, part_list)
  local line, reason = describe(job, part_list)
  if not line then
    log("info", "job left alone: " .. reason)
    return nil
  end
  local raw, err = exchange(line)
  if not raw then return nil, err end
  local answer = decode(raw)
  err = not answer and "not an answer" or fault_of(answer)
  if err then
    drop()
    return nil, err
  end
  breaker.success()
  if answer.refusal then
    log("info", "no advice: the server says " .. answer.refusal)
    return nil
  end
  -- no failure of the server's: fields repeat words of the user's own, who must not open the breaker for all
  local unfit = unfit_field(answer)
  if unfit then
    log("info", "job not changed: the value of " .. unfit .. " in the answer is not valid")
    return nil
  end
  return answer
end

local is_on = settings.enabled and has_socket and has_unix
local is_asking = false -- an error now is the exchange's

local function submit(job, part_list)
  local offset = job.het_job_offset
  if offset ~= UNSET_FROM[32] and number(offset, 32) then return end
  if job.cron_job then return end -- scrontab: scontrol cannot change such a job, so it could never come home
  look_at_configuration(part_list)
  if not breaker.allows() then
    if breaker.is_probe_due() then
      local line = describe(job, part_list)
      if line then breaker.leave('{"dry":true,' .. line:sub(2)) end
    end
    return
  end
  is_asking = true
  local answer, err = ask(job, part_list)
  is_asking = false
  if err then breaker.failure(err) end
  if not answer then return end
  if (answer.features or answer.prefer) and not answer.partition then
    -- what nodes there have is not known here: only the partition can be looked at
    log("info", "job not changed: the answer has features and no partition")
    return
  end
  if answer.features and not may_require(job, answer.features) then
    -- without it the job could start where it must not (spot, and it may not be requeued)
    log("info", "job not changed: the user's constraint cannot be combined with " .. answer.features)
    return
  end
  if answer.partition then
    local possible, reason = fits_all(job, part_list, answer.partition)
    if possible and is_too_long_here(job, part_list) then
      possible, reason = false, "job is over the time limit of its own partition"
    end
    if not possible then
      log("info", "job not changed: " .. reason)
      return
    end
  end
  gather_changes(job, part_list, answer)
  for at = 1, last, 2 do job[changes[at]] = changes[at + 1] end
  -- of a job that stays it is a price list, or what the cloud would do for it
  if answer.message and last > 0 then slurm.log_user("%s", answer.message) end
end

local function failed(err)
  if is_asking then
    is_asking = false
    drop()
    breaker.failure(err)
  else
    log("error", tostring(err))
  end
end

local function remember(job)
  words.job, words.partition = job, text(job.partition)
end

local advisor = {}

-- First in the site's own slurm_job_submit: what stands in the job now are its user's words.
function advisor.before(job_desc)
  words.job = nil
  if is_on then pcall(remember, job_desc) end
end

-- Last in it, once the site's rules have accepted the job. Returns slurm.SUCCESS, always.
function advisor.submit(job_desc, part_list, submit_uid) -- luacheck: no unused args
  if is_on then
    local fine, err = pcall(submit, job_desc, part_list)
    if not fine then pcall(failed, err) end
    words.job = nil
  end
  return SUCCESS
end

-- Both around a slurm_job_submit of the site's own: what it refuses is refused, and the server is not asked.
-- One that returns no number has accepted the job, for slurmctld as well.
function advisor.around(own)
  if type(own) ~= "function" then return advisor.submit end
  return function(job_desc, part_list, submit_uid)
    advisor.before(job_desc)
    local code = own(job_desc, part_list, submit_uid)
    if (tonumber(code) or SUCCESS) ~= SUCCESS then return code end
    return advisor.submit(job_desc, part_list, submit_uid)
  end
end

note_configuration()
log("info", ("loaded, socket %s, %g ms"):format(tostring(settings.socket), settings.budget_ms))
return advisor
