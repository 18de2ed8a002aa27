// GET /v1/loads and /get_load: report how busy each engine is, in the form that SGLang's gateways read.
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/report/engine_stats.h"
#include "tessera/server/api_result.h"
#include "tessera/server/http/http.h"

namespace tessera {

// Facts that all engines have in common.
struct LoadFacts {
  std::string accelerator;                // "NVIDIA H200"
  std::int64_t num_accelerators = 1;      // accelerators of one engine
  std::int64_t max_running_requests = 0;  // limit of one engine
};

class LoadReport {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LoadReport(LoadFacts facts) : facts_(std::move(facts)) {}

  // Answers /v1/loads. The query may have "include" (a comma-separated list of core, memory, spec, lora, disagg, queues
  // and all; default: all), "dp_rank" (the number of one engine) and "format" (json or prometheus). Errors: 400 for
  // other values.
  //
  // Before a request is admitted, it is not known which of its tokens are cached. The number of uncached waiting tokens
  // is estimated from the share of prompt tokens that was found in the cache so far.
  ApiResult<HttpResponse> answer(std::string_view query, std::span<const EngineStats> engines,
                                 Clock::time_point now = Clock::now());
  // Returns the body of /get_load, SGLang's older route.
  static std::string short_body(std::span<const EngineStats> engines);

 private:
  // The number of tokens that an engine had generated at the time `at`. The throughput is measured from then on.
  struct Counted {
    Clock::time_point at{};
    std::int64_t tokens = 0;
    double per_second = 0;
  };
  struct Field;
  std::vector<Field> fields_of(std::size_t rank, const EngineStats& stats, const std::vector<std::string>& sections);
  void count(std::span<const EngineStats> engines, Clock::time_point now);

  LoadFacts facts_;
  std::vector<Counted> counted_;  // [engines]
};

}  // namespace tessera
