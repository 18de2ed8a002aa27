#include "tessera/server/report/request_records.h"

#include <optional>
#include <utility>

#include "tessera/server/api_job.h"
#include "tessera/server/trace/request_span.h"

namespace tessera {

Result<RequestRecords> RequestRecords::open(const ServerOptions& options, const std::string& model) {
  std::unique_ptr<AccessLog> log;
  std::unique_ptr<SpanExporter> traces;
  if (!options.access_log.empty()) log = TRY(AccessLog::open(options.access_log, model).with_context("--access-log"));
  if (!options.traces.endpoint.empty())
    traces = TRY(SpanExporter::create(options.traces, model).with_context("--otlp-traces-endpoint"));
  return RequestRecords(std::move(log), std::move(traces));
}

void RequestRecords::note(const Call& call) const {
  if (traces_ == nullptr) return;
  call.generation().route = call.route();
  call.generation().trace_parent = call.request().header("traceparent");
  call.generation().trace_answer = answer_trace_parent(call.generation().trace_parent);
}

void RequestRecords::write(const FinishedRequest& finished) {
  if (log_ != nullptr) log_->write(finished);
  if (traces_ == nullptr) return;
  if (std::optional<TraceSpan> span = make_request_span(finished, unix_nanoseconds())) traces_->add(*std::move(span));
}

std::function<void(TraceSpan)> RequestRecords::span_sink() const {
  if (traces_ == nullptr) return {};
  return [traces = traces_.get()](TraceSpan span) { traces->add(std::move(span)); };
}

}  // namespace tessera
