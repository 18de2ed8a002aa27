// Reads "nvext", the object in which NVIDIA's agent toolkit (NAT) and clients of Dynamo send hints.
#pragma once

#include "tessera/engine/cache/retention_hint.h"
#include "tessera/server/api_result.h"
#include "tessera/server/fields/api_fields.h"

namespace tessera {

// Reads the hints that concern the prefix cache: agent_hints.prefix_id, the name of a conversation, and
// cache_control.ttl, for how long it should be kept ("90s", "5m", "1h"); a cache_control must have it. Other members of
// agent_hints are for routers and have no effect; its priority is one of them, because NAT sends low numbers for what
// is urgent, and Dynamo's clients send high ones.
ApiResult<RetentionHint> read_nvext(const ApiFields& fields);

}  // namespace tessera
