// Makes the spans of batches and of their requests. The trace's id is the hexadecimal digits of the batch's id, so a
// restarted server continues the trace without a record of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/server/batches/batch.h"
#include "tessera/server/trace/trace_span.h"

namespace tessera {

// Returns the part of the header traceparent that is stored in Batch::trace_parent, or "" if the header is absent or
// malformed.
std::string kept_trace_parent(std::string_view header);

// Returns the span of a batch that ended at `end_ns`, in nanoseconds since 1970. The span has a link to the client's
// span in which the batch was requested. Returns nothing if the client does not record its trace.
std::optional<TraceSpan> make_batch_span(const Batch& batch, std::int64_t end_ns);
// Returns the span of one of the batch's requests. It is a child of the batch's span. Returns nothing if the batch gets
// no span. The caller must set at least the status, the duration and the facts of the generation in `request`.
std::optional<TraceSpan> make_line_span(const Batch& batch, const std::string& custom_id, FinishedRequest request,
                                        std::int64_t end_ns);

}  // namespace tessera
