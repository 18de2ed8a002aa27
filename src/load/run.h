// Runs one load on one server: warms the server up, sends the requests at their times, and collects the results.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/load/agents.h"
#include "tessera/load/client.h"
#include "tessera/load/latency.h"
#include "tessera/load/load.h"

namespace tessera {

// A server, as described by its /v1/models.
struct LoadTarget {
  LoadClient& client;
  std::string model;
  std::optional<std::int64_t> context{};  // maximum number of tokens of a request, if the server reports it
  std::int64_t vocab_size = 0;            // upper bound of token ids
};
// Asks the server for its description. `model` is the name of the model to use. If it is "", the target uses the first
// model that the server lists.
Result<LoadTarget> ask_target(LoadClient& client, const std::string& model, std::int64_t vocab_size);

struct LoadRunOptions {
  std::optional<double> rate{};      // mean rate per second; infinity: all at once; unset: at LoadRequest::arrival_s
  std::uint64_t seed = 0;            // seed of the prompts
  std::uint64_t number = 0;          // number of the run; runs with different numbers share no prompt
  std::int64_t warmup = 0;           // requests before the run, which do not count
  std::int64_t max_concurrency = 0;  // simultaneous requests; 0: no limit
  std::function<void(std::int64_t requests)> on_start{};
  std::function<void()> on_end{};  // called when a request has ended
};

struct LoadRun {
  LoadResult result;
  std::int64_t clipped = 0;  // requests that were shortened to the context
  double cpu_share = 0;      // share of a core that this client used
  // Only for agents: the sum of known_tokens of the requests that succeeded, and latencies by prompt length.
  std::optional<std::int64_t> known_tokens{};
  std::vector<PromptLatency> latencies{};
};

// Sends the load on the calling thread until the last request has ended. Counts failed requests. Returns an error only
// if the client fails.
Result<LoadRun> run_load(const LoadTarget& target, Load load, const LoadRunOptions& options);

}  // namespace tessera
