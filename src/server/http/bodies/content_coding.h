// Inflates request bodies that a client has compressed with gzip, deflate or zstd (Content-Encoding).
//
// Inflating the largest body takes up to a tenth of a second, so decode_body() must not run on the I/O thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/server/api_result.h"
#include "tessera/server/memory_budget.h"

namespace tessera {

// The Accept-Encoding header of a 415 answer.
inline constexpr std::string_view kAcceptedCodings = "gzip, deflate, zstd";

// Returns whether decode_body() accepts this Content-Encoding: "", "identity", or one of kAcceptedCodings.
bool is_known_coding(std::string_view coding);

// Returns the decoded body. Inflates at most `max_bytes`. Meanwhile `memory` is charged with the compressed body and
// the decoded body. The buffer of the decoded body is charged before it grows. Precondition: is_known_coding(coding).
// Returns a 413 if the decoded body is longer than max_bytes, and a 400 if the bytes are not valid for the coding, end
// early, or are followed by other bytes. Also returns the errors of MemoryCharge::set.
ApiResult<std::string> decode_body(std::string body, std::string_view coding, std::size_t max_bytes,
                                   MemoryCharge& memory);

}  // namespace tessera
