// The server's metrics, in Prometheus' text form at /metrics: those of SGLang or vLLM under the names of their
// dashboards, and as tessera:… those of graphs, padding and memory.
//
// Threads: the I/O thread. An observation takes some tens of nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/engine/report/engine_stats.h"
#include "tessera/engine/request.h"
#include "tessera/server/report/latency_window.h"
#include "tessera/server/work/memory_budget.h"

namespace tessera {

enum class MetricsStyle : std::uint8_t { kSglang, kVllm };
// "sglang" or "vllm"
Result<MetricsStyle> metrics_style(std::string_view name);

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

class ServerMetrics {
 public:
  // `model_name` is a label of every metric under their names.
  ServerMetrics(MetricsStyle style, std::string model_name);
  ~ServerMetrics();

  // An HTTP request was answered or refused. `route` is one of few, never a path as a client sent it.
  void answered(std::string_view route, int status);

  // Of a generation: seconds from the request to its first token, and from one token to the next.
  void first_token(double seconds);
  void next_token(double seconds);

  struct End {
    double seconds = 0;  // since the request came
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
    FinishReason finish = FinishReason::kStop;
    double queue_s = 0;        // until it was admitted
    double first_token_s = 0;  // from the engine's hold of it to its first token; 0: it has none
    double engine_s = 0;       // from the engine's hold of it to its end
  };
  void ended(const End& end);
  // A generation was cancelled, by its client's leaving for the most part, and has no End.
  void cancelled();
  // All texts of an HTTP request have ended; the longest one has so many tokens.
  void call_ended(std::int64_t most_output_tokens);

  // Of the last minutes.
  ServerLatencies latencies() const;

  // All metrics as of now, of the engines together and, where they are several, of each. One at least. The throughput
  // is since the previous scrape. `memory`: what requests hold.
  std::string scrape(std::span<const EngineStats> engines, const MemoryBudget& memory,
                     std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
