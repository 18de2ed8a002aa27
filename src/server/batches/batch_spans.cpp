#include "tessera/server/batches/batch_spans.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/server/trace/request_span.h"

namespace tessera {
namespace {

// Returns the batch's span, which is the parent of the spans of the batch's requests. Returns nothing if the batch gets
// no span, or if the batch's id does not have the form of this server's ids. The form can be another one, because the
// id may have been read from a file's name.
std::optional<TraceParent> span_of(const Batch& batch) {
  const std::optional<TraceParent> client = read_trace_parent(batch.trace_parent);
  if (client && !client->sampled) return std::nullopt;
  const std::string digits = batch.id.substr(batch.id.find('_') + 1);
  return read_trace_parent(fmt::format("00-{}-{}-01", digits, digits.substr(0, kSpanDigits)));
}

}  // namespace

std::string kept_trace_parent(std::string_view header) {
  return std::string(read_trace_parent(header) ? header.substr(0, kTraceParentSize) : std::string_view());
}

std::optional<TraceSpan> make_batch_span(const Batch& batch, std::int64_t end_ns) {
  std::optional<TraceParent> own = span_of(batch);
  if (!own) return std::nullopt;
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return TraceSpan{
      .trace_id = std::move(own->trace_id),
      .span_id = std::move(own->span_id),
      .cause = read_trace_parent(batch.trace_parent),
      .start_ns = batch.created_at * kNanoseconds,
      .end_ns = end_ns,
      .work = FinishedBatch{.id = batch.id,
                            .endpoint = batch.endpoint,
                            .status = batch_status_name(batch.status),
                            .failed = batch.status == BatchStatus::kFailed || batch.status == BatchStatus::kExpired,
                            .total = batch.total,
                            .completed = batch.completed,
                            .failed_requests = batch.failed,
                            .usage = batch.usage}};
}

std::optional<TraceSpan> make_line_span(const Batch& batch, const std::string& custom_id, FinishedRequest request,
                                        std::int64_t end_ns) {
  const std::optional<TraceParent> parent = span_of(batch);
  if (!parent) return std::nullopt;
  request.generation.trace_parent = fmt::format("00-{}-{}-01", parent->trace_id, parent->span_id);
  std::optional<TraceSpan> span = make_request_span(request, end_ns);
  if (span) span->work = FinishedLine{.request = std::move(request), .batch_id = batch.id, .custom_id = custom_id};
  return span;
}

}  // namespace tessera
