// What a server writes of each request that has ended: a line of the access log, and a span of a trace.
//
// Threads: the I/O thread.
#pragma once

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
  // Opens what the options ask for. Errors begin with the name of the flag.
  static Result<RequestRecords> open(const ServerOptions& options, const std::string& model);

  // Returns whether anything is written.
  bool wanted() const { return log_ != nullptr || traces_ != nullptr; }
  // Notes of a request that has come what its span will need.
  void note(const Call& call) const;
  void write(const FinishedRequest& finished);
  void reopen_log() {
    if (log_ != nullptr) log_->reopen();
  }
  // Returns metrics in Prometheus' text format; "" if there are no traces.
  std::string metrics() const { return traces_ == nullptr ? "" : trace_metrics(*traces_); }

 private:
  RequestRecords(std::unique_ptr<AccessLog> log, std::unique_ptr<SpanExporter> traces)
      : log_(std::move(log)), traces_(std::move(traces)) {}
  std::unique_ptr<AccessLog> log_;        // null: there is none
  std::unique_ptr<SpanExporter> traces_;  // null: there are none
};

}  // namespace tessera
