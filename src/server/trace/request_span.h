// Makes OpenTelemetry spans for requests. A request that belongs to a client's trace gets a span if the client records
// this trace. Any other request gets a span if it ran the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/server/trace/trace_span.h"

namespace tessera {

inline constexpr std::size_t kTraceDigits = 32;
inline constexpr std::size_t kSpanDigits = 16;
// The length of the header traceparent in bytes. Versions after the first may append more text, which is not read.
inline constexpr std::size_t kTraceParentSize = 2 + 1 + kTraceDigits + 1 + kSpanDigits + 1 + 2;

// Parses the header. Returns nothing if the header is absent or malformed. In this case the request's span begins a new
// trace.
std::optional<TraceParent> read_trace_parent(std::string_view header);

// Returns the header traceparent of the answer to a request with this header: the client's trace, and a new id for the
// request's span in it. Returns "" if the header is absent or malformed.
std::string answer_trace_parent(std::string_view header);

// Returns the span of a request that ended at `end_ns`, Unix time; nothing if the request gets no span. A request with
// a traceparent header gets a span if the client records this trace. Other requests get a span if the model ran.
std::optional<TraceSpan> make_request_span(const FinishedRequest& finished, std::int64_t end_ns);

}  // namespace tessera
