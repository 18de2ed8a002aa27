// Formats the results of `bench serve` as tables.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/load/agents.h"
#include "tessera/load/latency.h"
#include "tessera/load/served_drafts.h"

namespace tessera::cli {

// The result of one of several runs, and the run's label in the tables.
struct LabelledResult {
  std::string label;
  LoadResult result;
  std::optional<ServedDrafts> drafts = std::nullopt;        // unset: the server does not report them
  std::optional<std::int64_t> known_tokens = std::nullopt;  // as in LoadRun
  std::vector<PromptLatency> latencies{};
};
std::string throughput_table(std::span<const LabelledResult> runs);
std::string latency_table(std::span<const LabelledResult> runs);
// Returns a table of the drafts, or "" if no run had drafts. Each draft token has a position among the draft tokens of
// its step. For each position, the table shows the percentage of the drafts at this position that were accepted.
std::string drafts_table(std::span<const LabelledResult> runs);
// Returns a table of the tokens that were found in the prefix cache, and a table of times to first token by prompt
// length. Returns "" if no run had agents.
std::string agents_tables(std::span<const LabelledResult> runs);

}  // namespace tessera::cli
