// The server's metrics at /metrics in Prometheus' text format. A metric that SGLang or vLLM also has gets the same
// name, so that their dashboards work. The names of metrics for graphs, padding and memory begin with "tessera:".
//
// Threads: used on the I/O thread only. An observation takes some tens of nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/engine/request.h"
#include "tessera/engine/stats/engine_stats.h"
#include "tessera/server/memory_budget.h"
#include "tessera/server/metrics/latency_window.h"

namespace tessera {

enum class MetricsStyle : std::uint8_t { kSglang, kVllm };
// Parses "sglang" or "vllm".
Result<MetricsStyle> metrics_style(std::string_view name);

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

class ServerMetrics {
 public:
  // `model_name` is a label of every metric whose name comes from SGLang or vLLM.
  ServerMetrics(MetricsStyle style, std::string model_name);
  ~ServerMetrics();

  // Counts an HTTP request that was answered or refused. `route` is one of a few constants, never a path from a client.
  void answered(std::string_view route, int status);

  // Record the seconds from a request to its first token, and the seconds from one token to the next.
  void first_token(double seconds);
  void next_token(double seconds);

  struct End {
    double seconds = 0;  // time from the request's arrival to its end
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
    FinishReason finish = FinishReason::kStop;
    double queue_s = 0;        // time from the engine's receipt of the request to its admission
    double first_token_s = 0;  // time from the engine's receipt of the request to its first token; 0: no token
    double engine_s = 0;       // time from the engine's receipt of the request to its end
  };
  void ended(const End& end);
  // Counts a generation that was cancelled, mostly because its client left. Such a generation is not passed to ended().
  void cancelled();
  // Counts an HTTP request after all its generations have ended. `most_output_tokens` is the length of the longest one.
  void call_ended(std::int64_t most_output_tokens);

  // Returns the latencies of the last minutes.
  ServerLatencies latencies() const;

  // Returns the current values of all metrics. Metrics of engines are summed over all engines. If there are several
  // engines, some metrics are also given for each engine. Needs at least one engine. The throughput is measured over at
  // least 0.1 s, in general since the previous scrape. `memory` is the budget for the memory that requests hold.
  std::string scrape(std::span<const EngineStats> engines, const MemoryBudget& memory,
                     std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
