#include "tessera/cli/bench/latency_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/cli/table.h"

namespace tessera::cli {
namespace {

// Returns a text such as "92 88 79", with one number for each position that a draft token can have in its step. The
// number is the percentage of the draft tokens at this position that were accepted.
std::string kept_by_position(const ServedDrafts& drafts) {
  std::string text;
  for (std::size_t i = 0; i < drafts.drafted_at.size() && i < drafts.kept_at.size(); ++i)
    if (drafts.drafted_at[i] > 0)
      text += fmt::format("{}{:.0f}", text.empty() ? "" : " ",
                          100 * static_cast<double>(drafts.kept_at[i]) / static_cast<double>(drafts.drafted_at[i]));
  return text;
}

}  // namespace

std::string throughput_table(std::span<const LabelledResult> runs) {
  Table table({"run", ">done", ">failed", ">seconds", ">requests/s", ">input tokens/s", ">output tokens/s"});
  for (const LabelledResult& run : runs) {
    const LoadResult& result = run.result;
    table.add({run.label, count_text(result.completed), count_text(result.failed), number_text(result.seconds),
               number_text(result.per_second(result.completed)), number_text(result.per_second(result.input_tokens)),
               number_text(result.per_second(result.output_tokens))});
  }
  return table.text();
}

std::string latency_table(std::span<const LabelledResult> runs) {
  Table table({"ms", "run", ">mean", ">p50", ">p90", ">p99"});
  for (const LatencyMetric& metric : kLatencyMetrics) {
    for (const LabelledResult& run : runs) {
      const Distribution& values = run.result.*metric.values;
      table.add({metric.heading, run.label, number_text(values.mean), number_text(values.p50), number_text(values.p90),
                 number_text(values.p99)});
    }
  }
  return table.text();
}

std::string drafts_table(std::span<const LabelledResult> runs) {
  Table table({"run", ">steps with drafts", ">drafts", ">kept", ">tokens a step", "kept by position, %"});
  for (const LabelledResult& run : runs)
    if (run.drafts && run.drafts->steps > 0)
      table.add({run.label, count_text(run.drafts->steps), count_text(run.drafts->drafted),
                 count_text(run.drafts->kept), number_text(run.drafts->mean_length()), kept_by_position(*run.drafts)});
  return table.empty() ? "" : table.text();
}

std::string agents_tables(std::span<const LabelledResult> runs) {
  Table hits({"run", ">input tokens", ">from the prefix cache", ">of all, %", ">of an unlimited cache's, %"});
  Table latencies({"run", "prompt tokens", ">requests", ">new tokens, mean", ">TTFT ms, mean", ">p50", ">p90", ">p99"});
  const auto percent = [](std::int64_t part, std::int64_t whole) {
    return fmt::format("{:.1f}",
                       100 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(whole, 1)));
  };
  for (const LabelledResult& run : runs) {
    if (!run.known_tokens) continue;
    const std::optional<std::int64_t> cached = run.result.cached_tokens;
    hits.add({run.label, count_text(run.result.input_tokens), cached ? count_text(*cached) : "not reported",
              cached ? percent(*cached, run.result.input_tokens) : "",
              cached ? percent(*cached, *run.known_tokens) : ""});
    for (const PromptLatency& range : run.latencies) {
      latencies.add({run.label,
                     fmt::format("{} to {}", count_text(range.least_tokens), count_text(range.end_tokens - 1)),
                     count_text(range.requests), number_text(range.new_tokens), number_text(range.ttft.mean),
                     number_text(range.ttft.p50), number_text(range.ttft.p90), number_text(range.ttft.p99)});
    }
  }
  return hits.empty() ? "" : hits.text() + "\n" + latencies.text();
}

}  // namespace tessera::cli
