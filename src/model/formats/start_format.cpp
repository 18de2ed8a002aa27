#include "tessera/model/formats/start_format.h"

#include <array>
#include <utility>

namespace tessera {
namespace {

constexpr std::int64_t kFp8StartBlock = 128;
constexpr std::int64_t kNvfp4StartGroup = 16;
constexpr std::array<std::int64_t, 3> kInt4StartGroups{128, 64, 32};  // in the order in which kernels prefer them

constexpr std::array kStartFormats{
    std::pair{std::string_view("fp8"), StartFormat::kFp8}, std::pair{std::string_view("int8"), StartFormat::kInt8},
    std::pair{std::string_view("int4"), StartFormat::kInt4}, std::pair{std::string_view("nvfp4"), StartFormat::kNvfp4}};

std::int64_t int4_group(std::int64_t cols) {
  for (const std::int64_t group : kInt4StartGroups)
    if (cols % group == 0) return group;
  return 0;
}

}  // namespace

std::optional<StartFormat> start_format_from_name(std::string_view name) {
  for (const auto& [known, format] : kStartFormats)
    if (known == name) return format;
  return std::nullopt;
}

std::optional<WeightFormat> format_at_start(StartFormat format, std::int64_t cols) {
  if (cols % start_cols(format) != 0) return std::nullopt;
  WeightFormat at_start{.spelling = WeightFormat::Spelling::kNumbers, .block_rows = 1};
  switch (format) {
    case StartFormat::kFp8:
      at_start.values = WeightFormat::Values::kE4M3;
      at_start.block_rows = kFp8StartBlock;
      at_start.block_cols = kFp8StartBlock;
      at_start.inputs = WeightFormat::Inputs::kGroup;
      break;
    case StartFormat::kInt8:
      at_start.values = WeightFormat::Values::kInt8;
      at_start.inputs = WeightFormat::Inputs::kToken;
      break;
    case StartFormat::kInt4:
      at_start.values = WeightFormat::Values::kInt4;
      at_start.block_cols = int4_group(cols);
      break;
    case StartFormat::kNvfp4:
      at_start.values = WeightFormat::Values::kE2M1;
      at_start.block_cols = kNvfp4StartGroup;
      break;
  }
  return at_start;
}

std::int64_t start_cols(StartFormat format) {
  switch (format) {
    case StartFormat::kInt4: return kInt4StartGroups.back();
    case StartFormat::kNvfp4: return kNvfp4StartGroup;
    default: return 1;
  }
}

}  // namespace tessera
