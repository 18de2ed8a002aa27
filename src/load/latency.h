// Summarises the requests of a load. Computes sums and percentiles from the requests' records.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/json.h"

namespace tessera {

// One request. Times are in seconds from the start of the run.
struct RequestRecord {
  double sent_s = 0;
  double first_token_s = 0;
  double end_s = 0;  // when the last token came
  // Times from one token to the next. If n tokens arrive together, each gets 1/n of the time since the last token
  // before them.
  std::vector<float> gaps_s{};
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::optional<std::int64_t> cached_tokens{};  // the prompt's tokens from the prefix cache, if reported
  std::vector<std::int64_t> output_ids{};       // empty unless the client keeps ids and the server reports them
  std::string failure{};                        // the reason of the failure; "": success

  double ttft_ms() const { return 1e3 * (first_token_s - sent_s); }
};

struct Distribution {
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};
// Computes the mean and percentiles, interpolated like numpy's. All are 0 if there are no values.
Distribution distribution(std::vector<double> values);

// The results of a load. Requests that failed are only counted, in `failed` and `failures`. Latencies are in
// milliseconds.
struct LoadResult {
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  std::map<std::string, std::int64_t> failures{};  // counts by reason
  double seconds = 0;                              // time from the first request sent to the last token
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::optional<std::int64_t> cached_tokens{};  // unset: the server reported none
  Distribution ttft{};                          // time to first token
  Distribution tpot{};                          // time per output token, without the first token; one value per request
  Distribution itl{};                           // inter-token latency: each gap between tokens, over all requests
  Distribution e2e{};                           // end-to-end latency: from sending to the last token

  double per_second(std::int64_t count) const { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }
};
LoadResult load_result(std::span<const RequestRecord> records);

struct LatencyMetric {
  const char* name;     // the metric's field in JSON
  const char* heading;  // the metric's heading in tables
  Distribution LoadResult::*values;
};
inline constexpr std::array<LatencyMetric, 4> kLatencyMetrics = {{{"ttft_ms", "TTFT", &LoadResult::ttft},
                                                                  {"tpot_ms", "TPOT", &LoadResult::tpot},
                                                                  {"itl_ms", "ITL", &LoadResult::itl},
                                                                  {"e2e_ms", "end to end", &LoadResult::e2e}}};

Json to_json(const Distribution& values);
Json to_json(const LoadResult& result);

}  // namespace tessera
