// The formats to which unquantised linears can be quantised while they are loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/model/formats/weight_format.h"

namespace tessera {

enum class StartFormat : std::uint8_t {
  kFp8,    // E4M3, one scale for each block of 128 × 128, as in FP8 checkpoints with blocks
  kInt8,   // a scale for each row
  kInt4,   // without zero points; one scale for 128 columns of a row, or for 64 or 32 if 128 does not divide them
  kNvfp4,  // E2M1, an E4M3 scale for 16 columns of a row under a factor of the matrix
};

inline constexpr std::string_view kStartFormatNames = "fp8, int8, int4, nvfp4";
std::optional<StartFormat> start_format_from_name(std::string_view name);

// Returns the format of a matrix whose rows have `cols` values; nothing if they do not fit start_cols().
std::optional<WeightFormat> format_at_start(StartFormat format, std::int64_t cols);
// Returns a number of which the columns of a matrix must be a multiple.
std::int64_t start_cols(StartFormat format);

}  // namespace tessera
