// Compares runs of `bench serve` with and without graphs: differences of paired runs, with confidence intervals.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/cli/bench/statistics.h"
#include "tessera/load/latency.h"

namespace tessera::cli {

struct GraphsRun {
  std::string rate;  // the rate as the tables show it: "4/s"
  bool graphs = false;
  const LoadResult* result = nullptr;
};

// One metric with and without graphs, in milliseconds.
struct RunDifference {
  std::string_view name;  // "ttft_p50_ms"
  double without = 0;     // mean of the runs without graphs
  double with = 0;
  Interval difference;  // 95 % confidence interval of with - without, by Student's t over the pairs
};

struct RateComparison {
  std::string rate;
  std::size_t pairs = 0;
  std::vector<RunDifference> differences;  // differences of p50 and p99 of the time to the first token
};

// Compares the runs. For each rate, the first run with graphs is paired with the first run without, the second with the
// second, and so on. Leaves out rates with fewer than two pairs.
std::vector<RateComparison> compare_graphs(std::span<const GraphsRun> runs);

std::string to_text(std::span<const RateComparison> comparisons);  // "" if there are none
Json to_json(std::span<const RateComparison> comparisons);

}  // namespace tessera::cli
