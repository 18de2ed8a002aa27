// Reads POST /v1/batches.
#pragma once

#include <string_view>

#include "tessera/server/api_result.h"
#include "tessera/server/batches/batch.h"
#include "tessera/server/served_model.h"

namespace tessera {

// The shortest and the longest time that a file may be kept after it was made, in seconds. The longest is the default.
inline constexpr std::int64_t kLeastFileAge = 3600;
inline constexpr std::int64_t kMostFileAge = std::int64_t{30} * 86400;

// Returns a batch with the request's endpoint, input file and metadata, and with the time for which its answer files
// are kept. Errors: 400 for a field that is missing, unknown or has a value that is not accepted.
ApiResult<Batch> read_new_batch(const ServedModel& model, std::string_view body);

}  // namespace tessera
