// Makes an OpenTelemetry span for each request that ran the model, or whose client traces it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tessera/server/http/http.h"

namespace tessera {

// The header traceparent (W3C Trace Context): the client's trace, and the span of this trace that sent the request.
struct TraceParent {
  std::string trace_id{};  // 32 hexadecimal digits
  std::string span_id{};   // 16 hexadecimal digits
  bool sampled = true;     // the client records its trace
};
// Parses the header. Returns nothing if it is absent or malformed; the request's span then begins a new trace.
std::optional<TraceParent> read_trace_parent(std::string_view header);

struct RequestSpan {
  std::string trace_id{};
  std::string span_id{};
  std::string parent_id{};    // "": the span is the root of its trace
  std::int64_t start_ns = 0;  // Unix time
  std::int64_t end_ns = 0;    // Unix time
  FinishedRequest request{};
};

// Returns the span of a request that ended at `end_ns`, Unix time; nothing if the request gets no span. A request with
// a traceparent header gets one if the client records this trace, and a request without the header if the model ran.
std::optional<RequestSpan> make_request_span(const FinishedRequest& finished, std::int64_t end_ns);

// Returns the JSON body of an OTLP/HTTP request with the spans. `service` is the service's name, `model` the model's.
std::string spans_json(std::span<const RequestSpan> spans, std::string_view service, std::string_view model);

}  // namespace tessera
