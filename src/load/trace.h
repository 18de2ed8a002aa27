// Reads recorded traces of requests, in the formats of published traces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/load/load.h"

namespace tessera {

// Returns the first `most` requests of a file, in the file's order. A file without requests is an error. The formats
// are Azure's CSV (TIMESTAMP, ContextTokens, GeneratedTokens) and Mooncake's JSON lines (timestamp in ms, input_length,
// output_length, hash_ids). The first line tells which format the file has. Lengths of 0 count as 1. Errors name the
// file and the number of the wrong line.
Result<std::vector<LoadRequest>> read_trace(const std::string& path, std::int64_t most);

}  // namespace tessera
