// Tables of what `bench serve` measured.
#pragma once

#include <span>
#include <string>

#include "tessera/load/latency.h"

namespace tessera::cli {

// One run among several; its label stands in its rows.
struct LabelledResult {
  std::string label;
  LoadResult result;
};
std::string throughput_table(std::span<const LabelledResult> runs);
std::string latency_table(std::span<const LabelledResult> runs);

}  // namespace tessera::cli
