// Recorded traces of requests, in the forms in which they are published.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/load/load.h"

namespace tessera {

// The first `most` requests of a file, at least one, as the file has them: Azure's CSV (TIMESTAMP, ContextTokens,
// GeneratedTokens) or Mooncake's JSON lines (timestamp in ms, input_length, output_length, hash_ids), told apart by
// their first line. Lengths of 0 count as 1. Errors name the file and, where one line is wrong, its number.
Result<std::vector<LoadRequest>> read_trace(const std::string& path, std::int64_t most);

}  // namespace tessera
