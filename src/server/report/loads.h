// GET /v1/loads and /get_load: how busy each engine is, as SGLang's gateways read it.
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

// What the engines have in common.
struct LoadFacts {
  std::string accelerator;                // "NVIDIA H200"
  std::int64_t num_accelerators = 1;      // of one engine
  std::int64_t max_running_requests = 0;  // of one engine
};

class LoadReport {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LoadReport(LoadFacts facts) : facts_(std::move(facts)) {}

  // Answers /v1/loads. The query may have "include" (core, memory, spec, lora, disagg, queues or all, separated by
  // commas; all), "dp_rank" (of one engine) and "format" (json or prometheus). Errors: 400 for other values.
  //
  // Tokens that wait and are not cached are not known before their requests are admitted. They are estimated by the
  // share of prompt tokens that was found in the cache so far.
  ApiResult<HttpResponse> answer(std::string_view query, std::span<const EngineStats> engines,
                                 Clock::time_point now = Clock::now());
  // Returns the body of /get_load, which SGLang had before.
  static std::string short_body(std::span<const EngineStats> engines);

 private:
  // The tokens of an engine that were generated up to a time, from which its throughput is measured.
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
