--[[
Burst Advisor's job_submit hook: asks `advisor serve` where a job should start, and never lets the
answer, or its absence, hurt a submission.

Copy this file beside slurm.conf and set JobSubmitPlugins=lua. Lua 5.1 to 5.4; needs lua-socket only.
Settings: `advisor_hook.conf` beside this file, `key = value` lines (see DEFAULTS); read when slurmctld
loads this file, so `touch job_submit.lua` after a change.

slurmctld holds locks while this runs. Therefore:
 * one exchange, connecting included, never takes longer than `budget_ms`;
 * after `breaker_failures` failures in a row nothing is tried for `breaker_seconds`, then one probe;
 * whatever goes wrong, the job is accepted as it was submitted (Slurm 26.05 rejects a job whose hook
   raises an error, so everything runs inside pcall, and fields are set last, all or none);
 * what the user said explicitly stays; heterogeneous jobs are not touched at all.
--]]

local PROTOCOL = 1
local ANSWER_BYTES = 16384  -- longest answer read
local REQUEST_BYTES = 61440 -- longest request sent; the server reads 65536
local DECISIVE_BYTES = 16384 -- a longer comment or constraint might hide an opt-out: job left alone
local COSMETIC_BYTES = 256  -- names are cut to this

local DEFAULTS = {
  socket = "/run/advisor/submit.sock",
  budget_ms = 50,
  breaker_failures = 5,
  breaker_seconds = 10,
  enabled = true,
}
local LIMITS = {budget_ms = {1, 500}, breaker_failures = {1, 1000}, breaker_seconds = {0.1, 3600}}

local SUCCESS = slurm.SUCCESS or 0

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
    settings[key] = value ~= "false" and value ~= "no" and value ~= "0"
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
      local key, value = line:match("^%s*([%w_]+)%s*=%s*(.-)%s*$")
      if key then read_setting(settings, key, value) end
    end
    file:close()
  end)
  return settings
end

local settings = read_settings()
local has_socket, socket = pcall(require, "socket")
local has_unix, unix = pcall(require, "socket.unix")
if not (has_socket and has_unix) then log("error", "lua-socket is missing: no advice will be asked for") end

-- -------------------------------------------------------------------------- JSON, flat objects: the request;
-- and the answer of a server that knows no other, or that refuses

local ESCAPES = {['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t"}

local function encode_string(text)
  if not text:find('[%c"\\]') then return '"' .. text .. '"' end
  return '"' .. text:gsub('[%c"\\]', function(char)
    return ESCAPES[char] or ("\\u%04x"):format(char:byte())
  end) .. '"'
end

local function encode_value(value)
  local kind = type(value)
  if kind == "string" then return encode_string(value) end
  if kind == "boolean" then return value and "true" or "false" end
  -- "%.0f": Lua 5.3+ refuses "%d" for a float, Lua 5.1 prints big numbers in exponent form
  return ("%.0f"):format(value)
end

local function utf8_bytes(code)
  if code < 0x80 then return string.char(code) end
  local tail = string.char(0x80 + code % 0x40)
  code = math.floor(code / 0x40)
  if code < 0x20 then return string.char(0xC0 + code) .. tail end
  tail = string.char(0x80 + code % 0x40) .. tail
  code = math.floor(code / 0x40)
  if code < 0x10 then return string.char(0xE0 + code) .. tail end
  return string.char(0xF0 + math.floor(code / 0x40), 0x80 + code % 0x40) .. tail
end

local UNESCAPES = {['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t"}

local found_wrong_escape = false
local KNOWN_ESCAPES = setmetatable({}, {__index = function() found_wrong_escape = true end})
for char, meaning in pairs(UNESCAPES) do KNOWN_ESCAPES[char] = meaning end

local function decode_with_codes(text)
  local parts, at = {}, 1
  while true do
    local backslash = text:find("\\", at, true)
    if not backslash then
      parts[#parts + 1] = text:sub(at)
      return table.concat(parts)
    end
    parts[#parts + 1] = text:sub(at, backslash - 1)
    local char = text:sub(backslash + 1, backslash + 1)
    if char == "u" then
      local code = tonumber(text:match("^%x%x%x%x", backslash + 2) or "", 16)
      at = backslash + 6
      if code and code >= 0xD800 and code < 0xDC00 then
        local low = tonumber(text:match("^\\u(%x%x%x%x)", at) or "", 16)
        if not low or low < 0xDC00 or low > 0xDFFF then return nil end
        code, at = 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00), at + 6
      elseif code and code >= 0xDC00 and code < 0xE000 then
        return nil
      end
      if not code then return nil end
      parts[#parts + 1] = utf8_bytes(code)
    else
      if not UNESCAPES[char] then return nil end
      parts[#parts + 1] = UNESCAPES[char]
      at = backslash + 2
    end
  end
end

-- text between quotes -> string, or nil when an escape is wrong
local function decode_string(text)
  if text:find("\\u", 1, true) then return decode_with_codes(text) end
  found_wrong_escape = false
  local decoded = text:gsub("\\(.)", KNOWN_ESCAPES)
  if found_wrong_escape then return nil end
  return decoded
end

-- position of the opening quote -> what stands between the quotes, position after the closing one
local function scan_raw(line, at)
  local raw, after = line:match('^"(.-[^\\])"()', at)
  -- without an escaped backslash in it, a quote after a backslash is an escaped one
  if raw and not raw:find("\\\\", 1, true) then return raw, after end
  local quote = at
  repeat
    quote = line:find('"', quote + 1, true)
    if not quote then return nil end
    local backslashes = 0
    while line:byte(quote - 1 - backslashes) == 92 do backslashes = backslashes + 1 end
  until backslashes % 2 == 0
  return line:sub(at + 1, quote - 1), quote + 1
end

-- position of the opening quote -> string, position after the closing quote
local function scan_string(line, at)
  local value, after = line:match('^"([^"\\%c]*)"()', at)
  if value or line:byte(at) ~= 34 then return value, after end
  value, after = scan_raw(line, at)
  value = value and decode_string(value) -- control characters: judged in what is to be set
  if not value then return nil end -- no position either: a bad string is not a null
  return value, after
end

local LITERALS = {["true"] = true, ["false"] = false}

local function scan_value(line, at)
  if line:byte(at) == 34 then return scan_string(line, at) end
  local word = line:match("^%l+", at)
  if word == "null" then return nil, at + 4 end
  if word then
    if LITERALS[word] == nil then return nil end
    return LITERALS[word], at + #word
  end
  local digits = line:match("^%-?%d+%.?%d*[eE]?[+-]?%d*", at)
  local number = digits and tonumber(digits)
  if not number or number ~= number or number == math.huge or number == -math.huge then return nil end
  return number, at + #digits
end

-- one flat object of strings, numbers, booleans and nulls -> table; anything else -> nil
local function decode(line)
  local at = line:match("^%s*{%s*()")
  if not at then return nil end
  local object = {}
  if line:match("^}%s*$", at) then return object end
  for _ = 1, 64 do
    local key, after = line:match('^%s*"([^"\\%c]*)"%s*:%s*()', at) -- no name of ours needs an escape
    if not key then return nil end
    local value, mark
    value, after = scan_value(line, after)
    if not after then return nil end
    object[key] = value
    mark, at = line:match("^%s*([,}])()", after)
    if mark == "}" then return line:match("^%s*$", at) and object end
    if not mark then return nil end
  end
  return nil
end

-- The compact answer, which the server gives to who asks for it: no quotes, no escapes, fields by place, ""
-- for what is not to be set. One match tells that it is whole and free of control characters; a newer server
-- may say more at the end. Reading JSON instead cost as much as all the rest of this file.
local TEXT, SIGNED, COUNT = "\t([^%c]*)", "\t(%-?%d*)", "\t(%d*)"
local COMPACT = "^(%d+)" .. COUNT .. TEXT:rep(3) .. SIGNED .. COUNT:rep(2) .. TEXT:rep(2) .. "[\t\n]"

local function decode_compact(line)
  local v, seq, partition, features, prefer, site_factor, nice, time_limit, message, admin_comment
    = line:match(COMPACT)
  if not v or site_factor == "-" then return nil end
  return {
    v = tonumber(v), seq = tonumber(seq), ok = true, is_compact = true,
    partition = partition ~= "" and partition or nil,
    features = features ~= "" and features or nil,
    prefer = prefer ~= "" and prefer or nil,
    site_factor = tonumber(site_factor), -- of "" it is nil
    nice = tonumber(nice),
    time_limit = tonumber(time_limit),
    message = message ~= "" and message or nil,
    admin_comment = admin_comment ~= "" and admin_comment or nil,
  }
end

-- ------------------------------------------------------------------- one bounded exchange

local connection -- kept between submissions: 20 us instead of 200 us a question

local function drop()
  if connection then pcall(connection.close, connection) end
  connection = nil
end

-- seconds left, never more than the budget even when somebody sets the clock back; nil: time is up
local function remaining(deadline)
  local left = math.min(deadline - socket.gettime(), settings.budget_ms / 1000)
  if left <= 0 then return nil end
  return left
end

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
  return client
end

-- receive("*l") reads without limit; this waits for one byte, then takes what has arrived
local function receive_line(client, deadline)
  local parts, size = {}, 0
  while size < ANSWER_BYTES do
    local left = remaining(deadline)
    if not left then return nil, "timeout" end
    client:settimeout(left, "t")
    local first, err = client:receive(1)
    if not first then return nil, err end
    client:settimeout(0, "t")
    local rest, _, partial = client:receive(ANSWER_BYTES - size)
    local chunk = first .. (rest or partial or "")
    size = size + #chunk
    parts[#parts + 1] = chunk
    local newline = chunk:find("\n", 1, true)
    if newline == #chunk then return #parts == 1 and chunk or table.concat(parts) end
    if newline then return nil, "more than one line" end
  end
  return nil, "answer too long"
end

local function exchange(line)
  local deadline = socket.gettime() + settings.budget_ms / 1000
  while true do
    local kept, err = connection ~= nil, nil
    if not kept then connection, err = connect(deadline) end
    if not connection then return nil, err end
    local left = remaining(deadline)
    local sent, answer
    if left then
      connection:settimeout(left, "t")
      sent, err = connection:send(line)
      if sent then answer, err = receive_line(connection, deadline) end
    else
      err = "timeout"
    end
    if answer then return answer end
    drop() -- never reuse a connection on which an answer may still arrive
    -- a kept connection that the server closed (it was restarted) is opened again, once
    if not kept or err ~= "closed" and not tostring(err):find("[Pp]ipe") then return nil, err end
  end
end

-- --------------------------------------------------------------------------------- breaker

local breaker = {failures = 0, retry_at = 0, failed = 0, skipped = 0}

function breaker.allows()
  if breaker.failures < settings.breaker_failures then return true end
  local left = breaker.retry_at - socket.gettime()
  if left <= 0 or left > settings.breaker_seconds then return true end -- the probe, or the clock was set
  breaker.skipped = breaker.skipped + 1
  return false
end

function breaker.failure(reason)
  breaker.failures = breaker.failures + 1
  breaker.failed = breaker.failed + 1
  if breaker.failures >= settings.breaker_failures then
    breaker.retry_at = socket.gettime() + settings.breaker_seconds
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

local function number(value, bits)
  if type(value) ~= "number" or value ~= value or value < 0 or value >= UNSET_FROM[bits] then return nil end
  return math.floor(value)
end

local function text(value)
  if type(value) == "string" and value ~= "" then return value end
  return nil
end

local function cut(value)
  value = text(value)
  return value and value:sub(1, COSMETIC_BYTES)
end

local function default_partition(part_list)
  for name, partition in pairs(part_list) do
    if partition.flag_default == 1 then return name, partition end
  end
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

local function generic_resources(job)
  return besides_processors(job.tres_per_node) or besides_processors(job.tres_per_job)
    or besides_processors(job.tres_per_task) or besides_processors(job.tres_per_socket)
end

local sequence = 0

-- The request under way. One table for all: a new one each time is work for the garbage collector of
-- slurmctld's Lua, which has all of its job records to look through.
local parts, count, too_long = {}, 0, nil

local function put(key, value)
  if value == nil then return end
  parts[count + 1], parts[count + 2] = key, encode_value(value)
  count = count + 2
end

local function put_decisive(key, value)
  if value and #value > DECISIVE_BYTES then too_long = key:match("%l+") end
  put(key, value)
end

-- A submission as one line, or nil and what is too long in it; and what `fits` looks at once more. Every name
-- costs slurmctld a search through its hundred field names, so each is read once, and only what the server
-- looks at.
local function describe(job, part_list)
  sequence = sequence + 1
  parts[1] = ('{"v":%d,"op":"advise","compact":true,"seq":%.0f'):format(PROTOCOL, sequence)
  count, too_long = 1, nil
  local partition = text(job.partition)
  local default_name, default = default_partition(part_list)
  local requeue = number(job.requeue, 16)
  local asked = {
    account = text(job.account) or text(job.default_account),
    qos = text(job.qos) or text(job.default_qos),
    time_limit = number(job.time_limit, 32),
    min_cpus = number(job.min_cpus, 32),
    min_nodes = number(job.min_nodes, 32),
  }
  put(',"uid":', number(job.user_id, 32))
  put(',"user":', cut(job.user_name))
  put(',"gid":', number(job.group_id, 32))
  put_decisive(',"partition":', partition)
  put(',"default_partition":', default_name)
  put(',"account":', cut(asked.account))
  put(',"qos":', cut(asked.qos))
  put(',"name":', cut(job.name))
  put_decisive(',"comment":', text(job.comment))
  put_decisive(',"features":', text(job.features))
  put(',"licenses":', cut(job.licenses))
  put(',"reservation":', cut(job.reservation))
  put(',"dependency":', cut(job.dependency))
  put(',"req_nodes":', cut(job.req_nodes))
  put(',"generic_resources":', cut(generic_resources(job)))
  put(',"burst_buffer":', cut(job.burst_buffer))
  put_decisive(',"array":', text(job.array_inx))
  if requeue then put(',"requeue":', requeue ~= 0) end
  local begin = number(job.begin_time, 64)
  if begin and begin > 0 then put(',"begin_time":', begin) end
  if number(job.priority, 32) == 0 then put(',"held":', true) end
  put(',"interactive":', job.script == nil)
  put(',"time_limit":', asked.time_limit)
  put(',"partition_time_limit":', partition_limit(partition and part_list[partition] or default))
  put(',"min_cpus":', asked.min_cpus)
  put(',"num_tasks":', number(job.num_tasks, 32))
  put(',"cpus_per_task":', number(job.cpus_per_task, 16))
  put(',"min_nodes":', asked.min_nodes)
  put(',"ntasks_per_node":', number(job.ntasks_per_node, 16))
  put(',"memory_per_cpu":', number(job.min_mem_per_cpu, 64))
  put(',"memory_per_node":', number(job.min_mem_per_node, 64))
  if breaker.failed > 0 then put(',"hook_failed":', breaker.failed) end
  if breaker.skipped > 0 then put(',"hook_skipped":', breaker.skipped) end
  if too_long then return nil, too_long .. " too long" end
  parts[count + 1] = "}\n"
  local line = table.concat(parts, "", 1, count + 1)
  if #line > REQUEST_BYTES then return nil, "request too long" end
  return line, asked
end

-- ------------------------------------------------------------------------ judging the answer

local function is_integer(value, low, high)
  return type(value) == "number" and value == math.floor(value) and value >= low and value <= high
end

local function is_text(value, limit, pattern)
  return type(value) == "string" and #value > 0 and #value <= limit
    and (not pattern or value:find(pattern) ~= nil)
end

local FEATURES = "^[%w_.:=&|,%-%[%]()*]+$"
local IS_VALID = { -- per field the hook knows; others are for newer hooks
  partition = function(value) return is_text(value, 256, "^[%w_.,+-]+$") end,
  features = function(value) return is_text(value, 512, FEATURES) end,
  prefer = function(value) return is_text(value, 512, FEATURES) end,
  site_factor = function(value) return is_integer(value, -2000000000, 2000000000) end,
  -- only ever later in the queue: that is what anybody may ask for
  nice = function(value) return is_integer(value, 0, 2000000000) end,
  admin_comment = function(value) return is_text(value, 4096) end,
  message = function(value) return is_text(value, 512) end,
  time_limit = function(value) return is_integer(value, 1, 4294967293) end,
}

-- The answer; or nil and what is wrong with it; or the answer and which field of it cannot be set. The last
-- is no failure of the server's: fields repeat words of the user's own, who must not open
-- the breaker for all.
local function judge(answer)
  if answer.v ~= PROTOCOL then return nil, "protocol version" end
  if answer.seq ~= sequence then return nil, "answer to another question" end
  if type(answer.ok) ~= "boolean" then return nil, "neither ok nor refused" end
  local unfit
  for name, is_valid in pairs(IS_VALID) do
    local value = answer[name]
    if value ~= nil then
      if not answer.is_compact and tostring(value):find("%c") then return nil, "bad " .. name end
      if not is_valid(value) then unfit = name end
    end
  end
  return answer, nil, unfit
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

local function over(asked, limit)
  return asked and limit and asked > limit
end

-- Would slurmctld reject or park the job there? Then it stays where it is.
local function fits(asked, part_list, partitions)
  for name in partitions:gmatch("[^,]+") do
    local partition = part_list[name]
    if not partition then return false, "partition " .. name .. " is not open to this user" end
    if number(partition.state_up, 32) ~= 3 then return false, "partition " .. name .. " is not up" end
    if over(asked.time_limit, number(partition.max_time, 32))
      or over(asked.min_nodes, number(partition.max_nodes, 32))
      or over(asked.min_nodes, number(partition.total_nodes, 32))
      or over(asked.min_cpus, number(partition.total_cpus, 32)) then
      return false, "job is over the limits of partition " .. name
    end
    if not admits(asked.account, partition.allow_accounts, partition.deny_accounts) then
      return false, "partition " .. name .. " does not take this account"
    end
    if not admits(asked.qos, partition.allow_qos, partition.deny_qos) then
      return false, "partition " .. name .. " does not take this QOS"
    end
  end
  return true
end

-- A moved job's longer limit: never shorter than the user's, never where he gave none (INFINITE is none as
-- well), never above MaxTime of a partition it may start in.
local function raised_limit(asked, part_list, answer)
  local limit = answer.time_limit
  if not (asked.time_limit and limit and answer.partition) then return nil end
  for name in answer.partition:gmatch("[^,]+") do
    limit = math.min(limit, number(part_list[name].max_time, 32) or limit)
  end
  return limit > asked.time_limit and limit or nil
end

-- A constraint of the user's may only be narrowed, and Slurm uses his --prefer instead of the constraint
local function may_require(job, features)
  local own = text(job.features)
  return not text(job.prefer) and (not own or features:sub(1, #own + 1) == own .. "&")
end

-- what to set, in order; what the user set himself is not in it
local function changes_for(job, asked, part_list, answer)
  local changes = {}
  local function change(name, value) changes[#changes + 1] = {name, value} end
  if answer.partition then change("partition", answer.partition) end
  if answer.features then change("features", answer.features) end
  if answer.prefer and not text(job.prefer) then change("prefer", answer.prefer) end
  if answer.site_factor and not number(job.site_factor, 32) then change("site_factor", answer.site_factor) end
  if answer.nice and answer.nice > 0 and not number(job.nice, 32) then
    change("nice", slurm.NICE_OFFSET + answer.nice)
  end
  if answer.admin_comment and not text(job.admin_comment) then
    change("admin_comment", answer.admin_comment)
  end
  local limit = raised_limit(asked, part_list, answer)
  if limit then change("time_limit", limit) end
  return changes
end

-- ---------------------------------------------------------------------------------- the hook

local function ask(job, part_list)
  local line, asked = describe(job, part_list)
  if not line then
    log("info", "job left alone: " .. asked)
    return nil
  end
  local raw, err = exchange(line)
  if not raw then return nil, err end
  local answer, unfit = decode_compact(raw) or decode(raw), nil
  if answer then answer, err, unfit = judge(answer) else err = "not an answer" end
  if not answer then
    drop()
    return nil, err
  end
  breaker.success()
  if unfit then
    log("info", "job left alone: " .. unfit .. " of the answer cannot be set")
    return nil
  end
  if answer.ok then
    answer.asked = asked
    return answer
  end
  log("info", "no advice: the server says " .. tostring(answer.error))
  return nil
end

local function submit(job, part_list)
  if not (settings.enabled and has_socket and has_unix) then return end
  if number(job.het_job_offset, 32) then return end
  if not breaker.allows() then return end
  local fine, answer, err = pcall(ask, job, part_list)
  if not fine then
    drop()
    answer, err = nil, answer
  end
  if err then breaker.failure(err) end
  if not answer then return end
  if answer.features and not may_require(job, answer.features) then
    -- without it the job could start where it must not (spot, and it may not be requeued)
    log("info", "job left alone: " .. answer.features .. " cannot be asked for beside the user's own words")
    return
  end
  if answer.partition then
    local possible, reason = fits(answer.asked, part_list, answer.partition)
    if not possible then
      log("info", "job left alone: " .. reason)
      return
    end
  end
  for _, change in ipairs(changes_for(job, answer.asked, part_list, answer)) do job[change[1]] = change[2] end
  if answer.partition and answer.message then slurm.log_user("%s", answer.message) end
end

function slurm_job_submit(job_desc, part_list, submit_uid) -- luacheck: no unused args
  local fine, err = pcall(submit, job_desc, part_list)
  if not fine then log("error", tostring(err)) end
  return SUCCESS
end

-- A change somebody makes himself is his decision: accepted as it is. Nothing is set here, for two reasons:
-- an admin_comment set for a plain user makes slurmctld refuse his update, and the control loops compare
-- the job's partition with the advice themselves and leave alone what a user has moved.
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) -- luacheck: no unused args
  return SUCCESS
end

log("info", ("loaded, socket %s, %g ms"):format(tostring(settings.socket), settings.budget_ms))
return SUCCESS
