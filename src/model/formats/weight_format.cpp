#include "tessera/model/formats/weight_format.h"

#include <fmt/format.h>

#include "tessera/ops/quantised/blocks/block_codes.h"

namespace tessera {
namespace {

std::string_view values_name(const WeightFormat& format) {
  switch (format.values) {
    case WeightFormat::Values::kUnquantised: return "unquantised";
    case WeightFormat::Values::kE4M3: return "FP8 e4m3";
    case WeightFormat::Values::kInt8: return "int8";
    case WeightFormat::Values::kInt4: return "int4";
    case WeightFormat::Values::kE2M1: return format.is_mxfp4() ? "MXFP4" : "NVFP4";
    case WeightFormat::Values::kBlocks: break;
  }
  return {};
}

std::string scales_name(const WeightFormat& format) {
  if (format.block_rows == 0) return "one scale";
  if (format.block_cols == 0) return "a scale for each row";
  if (format.block_rows == 1) return fmt::format("groups of {}", format.block_cols);
  return fmt::format("blocks of {} × {}", format.block_rows, format.block_cols);
}

}  // namespace

std::string describe(const WeightFormat& format) {
  if (format.is_unquantised()) return "unquantised";
  if (format.codes) {
    const bool bytes = block_codes_format(format.blocks)->values_of_byte() == 1;
    return fmt::format("GGUF's {} as {}", block_type_info(format.blocks).name, bytes ? "int8" : "int4");
  }
  if (format.is_blocks()) return fmt::format("GGUF's {}", block_type_info(format.blocks).name);
  return fmt::format("{}, {}{}{}", values_name(format), scales_name(format), format.zeros ? ", zero points" : "",
                     format.ordered ? ", ordered" : "");
}

}  // namespace tessera
