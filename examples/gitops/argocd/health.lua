-- Health of Partita's kinds for Argo CD, from their conditions. `obj` is the object; the answer is {status, message}.

local function answer(status, message)
  return {status = status, message = message or ""}
end

local found = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    found[condition.type] = condition
  end
end

local function holds(type, status)
  return found[type] ~= nil and found[type].status == status
end

local ready = found.Ready
if obj.metadata.deletionTimestamp ~= nil then
  return answer("Progressing", ready ~= nil and ready.message or "It is being deleted.")
end
if ready == nil or ready.observedGeneration ~= obj.metadata.generation then
  return answer("Progressing", "The operator has not processed it yet.")
end
if holds("Stalled", "True") then
  return answer("Degraded", found.Stalled.message)
end
-- A person or a maintenance window keeps a session from its plan, or a plan from being rolled out.
if holds("Held", "True") then
  return answer("Suspended", found.Held.message)
end
if obj.kind == "PipelinePlan" and (holds("Approved", "False") or ready.reason == "OutsideWindow" or ready.reason == "Paused") then
  return answer("Suspended", ready.message)
end
-- So does a pool whose nodes are to be cut into other slices.
if holds("Partitioned", "False") and found.Partitioned.reason == "AwaitingApproval" then
  return answer("Suspended", found.Partitioned.message)
end
if ready.status == "True" then
  return answer("Healthy", ready.message)
end
return answer("Progressing", ready.message)
