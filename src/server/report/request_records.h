// Writes the records of each request that has ended: a line of the access log, and a span of a trace.
//
// Threads: used on the I/O thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tessera/base/status.h"
#include "tessera/server/http/call.h"
#include "tessera/server/report/access_log.h"
#include "tessera/server/server_options.h"
#include "tessera/server/trace/span_exporter.h"

namespace tessera {

class RequestRecords {
 public:
  // Opens the records that the options ask for. Errors begin with the name of the flag.
  static Result<RequestRecords> open(const ServerOptions& options, const std::string& model);

  // Returns whether any record is written.
  bool wanted() const { return log_ != nullptr || traces_ != nullptr; }
  // Stores the data that the request's span will need. Call it when a request arrives.
  void note(const Call& call) const;
  void write(const FinishedRequest& finished);
  // Returns a function that sends a span; an empty function if there are no traces. Any thread may call the function as
  // long as this object exists.
  std::function<void(TraceSpan)> span_sink() const;
  void reopen_log() {
    if (log_ != nullptr) log_->reopen();
  }
  // Returns the trace exporter's metrics in Prometheus' text format; "" if there are no traces.
  std::string metrics() const { return traces_ == nullptr ? "" : trace_metrics(*traces_); }

 private:
  RequestRecords(std::unique_ptr<AccessLog> log, std::unique_ptr<SpanExporter> traces)
      : log_(std::move(log)), traces_(std::move(traces)) {}
  std::unique_ptr<AccessLog> log_;        // null: no access log
  std::unique_ptr<SpanExporter> traces_;  // null: no traces
};

}  // namespace tessera
