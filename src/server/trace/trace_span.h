// The spans that are sent to a collector. A span describes an HTTP request, a request in a batch's file, or a whole
// batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "tessera/server/fields/usage.h"
#include "tessera/server/http/http.h"

namespace tessera {

// The header traceparent (W3C Trace Context). It names the client's trace and the span in this trace that sent the
// request.
struct TraceParent {
  std::string trace_id{};  // 32 hexadecimal digits
  std::string span_id{};   // 16 hexadecimal digits
  bool sampled = true;     // the client records its trace
};

// A request that came from a batch's file and has ended. Its method, status and route are those of a direct HTTP
// request.
struct FinishedLine {
  FinishedRequest request{};
  std::string batch_id{};
  std::string custom_id{};
};

// A batch that has ended.
struct FinishedBatch {
  std::string id{};
  std::string endpoint{};     // for example "/v1/chat/completions"
  std::string_view status{};  // for example "completed"; a string literal
  bool failed = false;        // the batch could not do what was asked
  std::int64_t total = 0;     // number of requests; the next members count the completed and the failed ones
  std::int64_t completed = 0;
  std::int64_t failed_requests = 0;
  Usage usage{};
};

struct TraceSpan {
  std::string trace_id{};
  std::string span_id{};
  std::string parent_id{};             // "": the span is the root of its trace
  std::optional<TraceParent> cause{};  // a span of another trace that caused this one
  std::int64_t start_ns = 0;           // Unix time
  std::int64_t end_ns = 0;             // Unix time
  std::variant<FinishedRequest, FinishedLine, FinishedBatch> work{};
};

// Returns the JSON body of an OTLP/HTTP request with the spans. `service` is the service's name, `model` the model's.
std::string spans_json(std::span<const TraceSpan> spans, std::string_view service, std::string_view model);

}  // namespace tessera
