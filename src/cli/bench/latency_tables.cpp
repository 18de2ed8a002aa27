#include "tessera/cli/bench/latency_tables.h"

#include "tessera/cli/table.h"

namespace tessera::cli {

std::string throughput_table(std::span<const LabelledResult> runs) {
  Table table({"run", ">done", ">failed", ">seconds", ">requests/s", ">input tokens/s", ">output tokens/s"});
  for (const auto& [label, result] : runs) {
    table.add({label, count_text(result.completed), count_text(result.failed), number_text(result.seconds),
               number_text(result.per_second(result.completed)), number_text(result.per_second(result.input_tokens)),
               number_text(result.per_second(result.output_tokens))});
  }
  return table.text();
}

std::string latency_table(std::span<const LabelledResult> runs) {
  Table table({"ms", "run", ">mean", ">p50", ">p90", ">p99"});
  for (const LatencyMetric& metric : kLatencyMetrics) {
    for (const auto& [label, result] : runs) {
      const Distribution& values = result.*metric.values;
      table.add({metric.heading, label, number_text(values.mean), number_text(values.p50), number_text(values.p90),
                 number_text(values.p99)});
    }
  }
  return table.text();
}

}  // namespace tessera::cli
