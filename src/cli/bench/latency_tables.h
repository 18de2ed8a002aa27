// Tables of the results of `bench serve`.
#pragma once

#include <span>
#include <string>

#include "tessera/load/latency.h"

namespace tessera::cli {

// One run of several. Its label is shown in its rows.
struct LabelledResult {
  std::string label;
  LoadResult result;
};
std::string throughput_table(std::span<const LabelledResult> runs);
std::string latency_table(std::span<const LabelledResult> runs);

}  // namespace tessera::cli
