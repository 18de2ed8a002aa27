// Formats the results of `bench serve` as tables.
#pragma once

#include <span>
#include <string>

#include "tessera/load/latency.h"

namespace tessera::cli {

// One of several runs, with the label that its rows show.
struct LabelledResult {
  std::string label;
  LoadResult result;
};
std::string throughput_table(std::span<const LabelledResult> runs);
std::string latency_table(std::span<const LabelledResult> runs);

}  // namespace tessera::cli
