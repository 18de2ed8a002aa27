// Runs requests to their end, for callers that want nothing else from the engine meanwhile.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/request.h"

namespace tessera {

class Engine;

// Receives each event, and the index of its request among those given to run_requests().
using OnEvent = std::function<void(std::size_t index, const RequestEvent& event)>;

// Implements Engine::run().
Result<std::vector<Completion>> run_requests(Engine& engine, std::span<const Request> requests,
                                             const OnEvent& on_event);

}  // namespace tessera
