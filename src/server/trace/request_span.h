// A span of OpenTelemetry for each request that ran the model, or whose client traces it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tessera/server/http/http.h"

namespace tessera {

// The header traceparent (W3C Trace Context): the client's trace, and its span that sent the request.
struct TraceParent {
  std::string trace_id{};  // 32 hexadecimal digits
  std::string span_id{};   // 16 hexadecimal digits
  bool sampled = true;     // the client records its trace
};
// Returns nothing if the header is absent or malformed; the request then begins a trace of its own.
std::optional<TraceParent> read_trace_parent(std::string_view header);

struct RequestSpan {
  std::string trace_id{};
  std::string span_id{};
  std::string parent_id{};    // "": the span begins the trace
  std::int64_t start_ns = 0;  // Unix time
  std::int64_t end_ns = 0;    // Unix time
  FinishedRequest request{};
};

// Returns the span of a request that has ended at `end_ns`, Unix time; nothing if none is wanted: the model did not run
// and the client does not trace, or its trace is not recorded.
std::optional<RequestSpan> make_request_span(const FinishedRequest& finished, std::int64_t end_ns);

// Returns the body of an OTLP/HTTP request in JSON with the spans of a service whose model has this name.
std::string spans_json(std::span<const RequestSpan> spans, std::string_view service, std::string_view model);

}  // namespace tessera
