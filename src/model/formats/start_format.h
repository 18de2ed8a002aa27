// Lists the formats to which an engine can quantise linears at its start, while it loads an unquantised checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/model/formats/weight_format.h"

namespace tessera {

enum class StartFormat : std::uint8_t {
  kFp8,   // E4M3, one scale for each block of 128 × 128, as in FP8 checkpoints with blocks
  kInt8,  // one scale for each row
  // Integers without zero points. There is one scale for each group of g columns of a row, where g is the first of 128,
  // 64 and 32 that divides the number of columns.
  kInt4,
  kNvfp4,  // E2M1 values, one E4M3 scale for each 16 columns of a row, and one factor for the whole matrix
};

inline constexpr std::string_view kStartFormatNames = "fp8, int8, int4, nvfp4";
std::optional<StartFormat> start_format_from_name(std::string_view name);

// Returns the format for a matrix whose rows have `cols` values. Returns nothing if `cols` is not a multiple of
// start_cols().
std::optional<WeightFormat> format_at_start(StartFormat format, std::int64_t cols);
// Returns the number that must divide the number of columns of a matrix.
std::int64_t start_cols(StartFormat format);

}  // namespace tessera
