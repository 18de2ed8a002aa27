// Request bodies that a client has compressed: Content-Encoding gzip, deflate and zstd.
//
// Cost: that of the library, up to a tenth of a second for a body at the limit. Do not call it on the I/O thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/server/api_result.h"
#include "tessera/server/work/memory_budget.h"

namespace tessera {

// The value of the Accept-Encoding header of a 415.
inline constexpr std::string_view kAcceptedCodings = "gzip, deflate, zstd";

// Whether decode_body() takes this Content-Encoding: "", "identity", or one of kAcceptedCodings.
bool is_known_coding(std::string_view coding);

// Returns the body before it was encoded with `coding`. Inflates at most `max_bytes`. While it runs, `memory` is
// charged with both bodies; each piece is charged before its memory is allocated. Precondition:
// is_known_coding(coding). Errors: 413 if the inflated body is longer than max_bytes; 400 if the bytes are not valid
// for the coding, end early, or are followed by other bytes; the errors of MemoryCharge::set.
ApiResult<std::string> decode_body(std::string body, std::string_view coding, std::size_t max_bytes,
                                   MemoryCharge& memory);

}  // namespace tessera
