// Formats the results of `bench serve` as tables.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "tessera/load/latency.h"
#include "tessera/load/served_drafts.h"

namespace tessera::cli {

// One of several runs, with the label that its rows show.
struct LabelledResult {
  std::string label;
  LoadResult result;
  std::optional<ServedDrafts> drafts = std::nullopt;  // drafts of the run; absent: the server does not tell
};
std::string throughput_table(std::span<const LabelledResult> runs);
std::string latency_table(std::span<const LabelledResult> runs);
// Returns "" if no run had drafts. Shares by position are of the drafts at that position.
std::string drafts_table(std::span<const LabelledResult> runs);

}  // namespace tessera::cli
