// Reads "nvext", the object in which NVIDIA's agent toolkit (NAT) and clients of Dynamo send hints.
#pragma once

#include "tessera/engine/cache/retention_hint.h"
#include "tessera/server/api_result.h"
#include "tessera/server/fields/api_fields.h"

namespace tessera {

// Reads the two hints that concern the prefix cache. agent_hints.prefix_id is the name of a conversation.
// cache_control.ttl says for how long the cache should keep the conversation ("90s", "5m", "1h"). A cache_control
// without ttl is refused. Other members of agent_hints are for routers and have no effect. agent_hints.priority has no
// effect either, because its senders disagree: NAT sends low numbers for urgent requests, and Dynamo's clients send
// high ones.
ApiResult<RetentionHint> read_nvext(const ApiFields& fields);

}  // namespace tessera
