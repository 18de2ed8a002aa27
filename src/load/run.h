// One load on one server: warming it up, sending the requests at their times, and what came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/base/status.h"
#include "tessera/load/client.h"
#include "tessera/load/latency.h"
#include "tessera/load/load.h"

namespace tessera {

// A server as its /v1/models describes it.
struct LoadTarget {
  LoadClient& client;
  std::string model;
  std::optional<std::int64_t> context{};  // tokens of one request, where the server tells
  std::int64_t vocab_size = 0;            // token ids are below it
};
// `model`: the one to be asked; "": the first that the server names.
Result<LoadTarget> ask_target(LoadClient& client, const std::string& model, std::int64_t vocab_size);

struct LoadRunOptions {
  std::optional<double> rate{};      // requests a second on average; infinity: all at once; none: as recorded
  std::uint64_t seed = 0;            // of prompts
  std::uint64_t number = 0;          // runs of different numbers share no prompt
  std::int64_t warmup = 0;           // requests before that do not count
  std::int64_t max_concurrency = 0;  // requests under way; 0: any number
  std::function<void(std::int64_t requests)> on_start{};
  std::function<void()> on_end{};  // of each request
};

struct LoadRun {
  LoadResult result;
  std::int64_t clipped = 0;  // requests that were shortened to the context
  double cpu_share = 0;      // of a core, by this client
};

// Sends the load on the calling thread, until the last request has ended. A request that fails is counted; an error is
// the client's own.
Result<LoadRun> run_load(const LoadTarget& target, Load load, const LoadRunOptions& options);

}  // namespace tessera
