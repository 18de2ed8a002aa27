#include "tessera/engine/run_requests.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/engine/engine.h"

namespace tessera {
namespace {

// Submits all requests and returns their ids in ascending order. Drops all of them if one is refused.
Result<std::vector<RequestId>> submit_all(Engine& engine, std::span<const Request> requests) {
  std::vector<RequestId> ids;
  ids.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Result<RequestId> id = engine.submit(requests[i]);
    if (id.ok()) {
      ids.push_back(*id);
      continue;
    }
    for (const RequestId queued : ids) {
      engine.cancel(queued);
      engine.take(queued);
    }
    return requests.size() > 1 ? id.status().with_context(fmt::format("request {}", i)) : id.status();
  }
  return ids;
}

}  // namespace

Result<std::vector<Completion>> run_requests(Engine& engine, std::span<const Request> requests,
                                             const OnEvent& on_event) {
  const std::vector<RequestId> ids = TRY(submit_all(engine, requests));
  Status failure;
  while (!engine.idle()) {
    for (const RequestEvent& event : TRY(engine.step())) {
      if (!event.error.ok() && failure.ok()) failure = event.error;
      const auto it = std::ranges::lower_bound(ids, event.request);
      if (on_event && it != ids.end() && *it == event.request)
        on_event(static_cast<std::size_t>(it - ids.begin()), event);
    }
  }
  std::vector<Completion> completions;
  completions.reserve(ids.size());
  for (const RequestId id : ids) completions.push_back(*engine.take(id));
  TRY(failure);
  return completions;
}

}  // namespace tessera
