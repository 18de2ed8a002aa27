// Sends spans to a collector as OTLP over HTTP, in JSON, on a thread of its own. Spans wait in a bounded queue and are
// sent in batches, at most a second after the first span of a batch came. If the collector cannot be reached or is
// overloaded, a batch is sent up to five times, with growing pauses. If the batch still fails, its spans are dropped
// and counted. Spans that come while the queue is full are also dropped and counted.
//
//   std::unique_ptr<SpanExporter> exporter = TRY(SpanExporter::create(options, model.name));
//   exporter->add(span);
//
// Threads: any thread may call every function.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/trace/trace_options.h"
#include "tessera/server/trace/trace_span.h"

namespace tessera {

class SpanExporter {
 public:
  static constexpr std::size_t kMostWaiting = 8192;
  static constexpr std::size_t kMostSent = 512;  // maximum number of spans in one request to the collector

  // Errors: options.endpoint is not a URL, or libcurl cannot be started. Does not check whether the collector answers,
  // because the collector may start later.
  static Result<std::unique_ptr<SpanExporter>> create(TraceOptions options, std::string model);
  // Sends the waiting spans, for up to two seconds.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Adds a span to the queue, or drops it if the queue is full. Never waits for the collector.
  void add(TraceSpan span);

  std::int64_t sent() const { return sent_; }
  std::int64_t dropped() const { return dropped_; }

 private:
  using Clock = std::chrono::steady_clock;
  class Connection;
  enum class Outcome : std::uint8_t { kSent, kTryAgain, kRefused };

  SpanExporter(TraceOptions options, std::string url, std::string model);
  void work();
  // Waits for spans. Returns an empty list when the exporter ends and no span is left.
  std::vector<TraceSpan> next();
  void deliver(Connection& connection, const std::vector<TraceSpan>& spans);
  // Waits before the next attempt. Returns false once the exporter ends.
  bool pause(Clock::duration time);
  void warn(const std::string& why, std::size_t spans);

  const TraceOptions options_;
  const std::string url_;
  const std::string model_;
  std::atomic<std::int64_t> sent_ = 0;
  std::atomic<std::int64_t> dropped_ = 0;
  std::atomic<Clock::time_point> end_ = Clock::time_point::max();  // the time at which running transfers are given up

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<TraceSpan> waiting_;  // guarded by the mutex
  bool ending_ = false;             // guarded by the mutex
  bool warned_ = false;             // used only by the thread
  std::thread thread_;              // last member, because the thread uses the other members
};

// Returns the exporter's metrics in Prometheus' text format.
std::string trace_metrics(const SpanExporter& exporter);

}  // namespace tessera
