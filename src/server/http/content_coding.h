// Request bodies that a client has compressed: Content-Encoding gzip, deflate and zstd.
//
// Cost: as the library's, up to a tenth of a second for a body at the limit, so not for the I/O thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/server/api_result.h"
#include "tessera/server/work/memory_budget.h"

namespace tessera {

// The value of the Accept-Encoding header that goes with a 415.
inline constexpr std::string_view kAcceptedCodings = "gzip, deflate, zstd";

// Whether a Content-Encoding is one that decode_body() takes: none, "identity", or one of the accepted ones.
bool is_known_coding(std::string_view coding);

// The body as it was before `coding`. Precondition: is_known_coding(coding). No more than `max_bytes` are ever
// inflated. `memory` holds both bodies while this runs, each piece before there is room for it. Errors: 413 where the
// inflated body is longer; 400 where the bytes are not of the coding, end early, or are followed by others; those of
// MemoryCharge::set.
ApiResult<std::string> decode_body(std::string body, std::string_view coding, std::size_t max_bytes,
                                   MemoryCharge& memory);

}  // namespace tessera
