#include "tessera/load/latency.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace tessera {
namespace {

// Returns the percentile for `share` (0 … 1), interpolated between two values. Precondition: `sorted` is not empty.
double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - std::floor(place)) * (sorted[above] - sorted[below]);
}

}  // namespace

Distribution distribution(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.mean = sum / static_cast<double>(values.size()),
          .p50 = percentile(values, 0.5),
          .p90 = percentile(values, 0.9),
          .p99 = percentile(values, 0.99)};
}

LoadResult load_result(std::span<const RequestRecord> records) {
  LoadResult result;
  std::vector<double> ttft, tpot, itl, e2e;
  double first_sent = std::numeric_limits<double>::infinity();
  double last_end = 0;
  for (const RequestRecord& record : records) {
    if (!record.failure.empty()) {
      ++result.failed;
      ++result.failures[record.failure];
      continue;
    }
    ++result.completed;
    result.input_tokens += record.input_tokens;
    result.output_tokens += record.output_tokens;
    if (record.cached_tokens) result.cached_tokens = result.cached_tokens.value_or(0) + *record.cached_tokens;
    first_sent = std::min(first_sent, record.sent_s);
    last_end = std::max(last_end, record.end_s);
    ttft.push_back(record.ttft_ms());
    e2e.push_back(1e3 * (record.end_s - record.sent_s));
    if (record.output_tokens > 1) {
      tpot.push_back(1e3 * (record.end_s - record.first_token_s) / static_cast<double>(record.output_tokens - 1));
    }
    for (const float gap : record.gaps_s) itl.push_back(1e3 * static_cast<double>(gap));
  }
  if (result.completed > 0) result.seconds = last_end - first_sent;
  result.ttft = distribution(std::move(ttft));
  result.tpot = distribution(std::move(tpot));
  result.itl = distribution(std::move(itl));
  result.e2e = distribution(std::move(e2e));
  return result;
}

Json to_json(const Distribution& values) {
  Json json = Json::object();
  return std::move(json.set("mean", values.mean).set("p50", values.p50).set("p90", values.p90).set("p99", values.p99));
}

Json to_json(const LoadResult& result) {
  Json json = Json::object();
  json.set("completed", result.completed).set("failed", result.failed);
  Json failures = Json::object();
  for (const auto& [reason, count] : result.failures) failures.set(reason, count);
  json.set("failures", std::move(failures)).set("seconds", result.seconds);
  json.set("input_tokens", result.input_tokens).set("output_tokens", result.output_tokens);
  json.set("cached_tokens", result.cached_tokens ? Json(*result.cached_tokens) : Json());
  json.set("requests_per_second", result.per_second(result.completed));
  json.set("input_tokens_per_second", result.per_second(result.input_tokens));
  json.set("output_tokens_per_second", result.per_second(result.output_tokens));
  for (const LatencyMetric& metric : kLatencyMetrics) {
    json.set(metric.name, to_json(result.*metric.values));
  }
  return json;
}

}  // namespace tessera
