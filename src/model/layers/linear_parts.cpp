#include "tessera/model/layers/linear_parts.h"

#include <fmt/format.h>

#include <array>
#include <numeric>

#include "tessera/base/ceil_div.h"
#include "tessera/model/layers/block_parts.h"
#include "tessera/ops/quantised/blocks/block_codes.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera {

std::int64_t sum_of_rows(std::span<const LinearPart> parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const LinearPart& part) { return sum + part.rows; });
}

std::string matrix_tensor(const LinearPart& part) {
  return part.matrix.empty() ? part.tensor + ".weight" : part.matrix;
}

namespace {

using Spelling = WeightFormat::Spelling;
using FormatValues = WeightFormat::Values;

bool by_columns(const LinearPart& part) { return part.slice.dim == 1; }
std::int64_t first_row(const LinearPart& part) { return by_columns(part) ? 0 : part.slice.begin; }
std::int64_t first_col(const LinearPart& part) { return by_columns(part) ? part.slice.begin : 0; }

// Returns the part's slice of a table of scales. The table has one element for each block of `rows` × `cols` elements
// of the matrix.
TensorSlice slice_of_blocks(const LinearPart& part, std::int64_t rows, std::int64_t cols) {
  if (by_columns(part)) return {.dim = 1, .begin = first_col(part) / cols, .size = ceil_div(part.cols, cols)};
  return {.dim = 0, .begin = first_row(part) / rows, .size = ceil_div(part.rows, rows)};
}

// The block size of a joint table of scales for all parts. It is the largest size at which all values of a block have
// the same scale.
struct Grid {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

Grid grid_of(std::span<const LinearPart> parts, LastBlock last) {
  const WeightFormat& format = parts[0].format;
  std::int64_t rows = format.block_rows;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (format.block_rows > 0) rows = std::gcd(rows, first_row(parts[i]));
    if (i + 1 < parts.size() || format.block_rows == 0 || last == LastBlock::kWhole)
      rows = std::gcd(rows, parts[i].rows);
  }
  const std::int64_t cols = format.block_cols > 0 ? std::gcd(format.block_cols, first_col(parts[0])) : parts[0].cols;
  return {.rows = rows, .cols = cols};
}

std::int64_t block_rows(const LinearPart& part) {
  return part.format.block_rows > 0 ? part.format.block_rows : part.tensor_rows;
}
std::int64_t block_cols(const LinearPart& part) {
  return part.format.block_cols > 0 ? part.format.block_cols : part.tensor_cols;
}

struct Names {
  const char* values;
  const char* scales;
  const char* zeros = nullptr;
  const char* factor = nullptr;
  const char* groups = nullptr;
  const char* shape = nullptr;
};

Names names_of(const WeightFormat& format) {
  switch (format.spelling) {
    case Spelling::kScaled: return {.values = "weight", .scales = format.scale.c_str()};
    case Spelling::kPacked:
      return {.values = "weight_packed",
              .scales = "weight_scale",
              .zeros = "weight_zero_point",
              .groups = "weight_g_idx",
              .shape = "weight_shape"};
    case Spelling::kGptq: return {.values = "qweight", .scales = "scales", .zeros = "qzeros", .groups = "g_idx"};
    case Spelling::kAwq: return {.values = "qweight", .scales = "scales", .zeros = "qzeros"};
    case Spelling::kNvfp4Packed:
      return {.values = "weight_packed", .scales = "weight_scale", .factor = "weight_global_scale"};
    case Spelling::kNvfp4: return {.values = "weight", .scales = "weight_scale", .factor = "weight_scale_2"};
    case Spelling::kMxfp4Packed: return {.values = "weight_packed", .scales = "weight_scale"};
    case Spelling::kMxfp4: return {.values = "weight", .scales = "weight_scale"};
    case Spelling::kNumbers:
    case Spelling::kBlocks: break;
  }
  return {};
}

// Returns the name of the tensor with a scale of the inputs; null if the format has no such tensor. Kernels ignore this
// scale, but the checkpoint may contain it.
const char* input_scale(const WeightFormat& format) {
  if (format.spelling == Spelling::kNvfp4Packed) return "input_global_scale";
  const bool stored = format.inputs == WeightFormat::Inputs::kTensor || format.spelling == Spelling::kNvfp4;
  return stored ? "input_scale" : nullptr;
}

QuantisedFormat operator_format(const WeightFormat& format, const Grid& grid) {
  constexpr std::array kValues{QuantisedFormat::Values::kE4M3, QuantisedFormat::Values::kInt8,
                               QuantisedFormat::Values::kInt4, QuantisedFormat::Values::kE2M1};
  const bool nvfp4 = format.is_nvfp4();
  return {.values = kValues[static_cast<std::size_t>(format.values) - 1],
          .scales = nvfp4 ? QuantisedFormat::Scales::kE4M3 : QuantisedFormat::Scales::kFloat32,
          .group_rows = nvfp4 ? 1 : grid.rows,
          .group_cols = nvfp4 ? kNvfp4Group : grid.cols,
          .factor = nvfp4,
          .zeros = format.zeros,
          .groups = format.ordered};
}

// Returns the scale with which a random quantised matrix has about the same mean square as other random weights.
float dummy_scale(FormatValues values) {
  switch (values) {
    case FormatValues::kInt8: return 2.7e-4F;
    case FormatValues::kInt4: return 4.3e-3F;
    case FormatValues::kE2M1: return 6.7e-3F;
    default: return 3e-2F;
  }
}

// Returns the layout of the part's unquantised matrix, which is quantised while it is read.
StridedStorage numbers_of(const LinearPart& part) {
  if (const auto* strided = std::get_if<StridedStorage>(&part.storage)) return *strided;
  if (std::holds_alternative<TransposedStorage>(part.storage))
    return {.tensor_shape = {part.tensor_cols, part.tensor_rows}, .row_stride = 1, .col_stride = part.tensor_rows};
  return {.tensor_shape = {part.tensor_rows, part.tensor_cols}, .row_stride = part.tensor_cols};
}

// Makes the weights of one linear.
class Joiner {
 public:
  Joiner(const std::string& name, std::span<const LinearPart> parts, LastBlock last)
      : name_(name),
        parts_(parts),
        grid_(grid_of(parts, last)),
        format_(operator_format(parts[0].format, grid_)),
        names_(names_of(parts[0].format)),
        groups_(ceil_div(parts[0].tensor_cols, block_cols(parts[0]))) {}

  QuantisedWeights join() const {
    QuantisedWeights joined{.format = format_, .weights = {values(), scales()}};
    if (format_.factor) joined.weights.push_back(factor());
    if (format_.zeros) joined.weights.push_back(zeros());
    if (format_.groups) joined.weights.push_back(groups());
    return joined;
  }

 private:
  bool transposed() const {
    const Spelling spelling = parts_[0].format.spelling;
    return spelling == Spelling::kGptq || spelling == Spelling::kAwq;
  }
  bool has_small_scales() const { return format_.scales == QuantisedFormat::Scales::kE4M3; }

  bool of_numbers() const { return parts_[0].format.spelling == Spelling::kNumbers; }

  std::string tensor_of(const LinearPart& part, const char* name) const {
    return of_numbers() ? matrix_tensor(part) : fmt::format("{}.{}", part.tensor, name);
  }

  RoundedStorage rounded(const LinearPart& part, RoundedStorage::Content content) const {
    return {.numbers = numbers_of(part),
            .rows = part.tensor_rows,
            .cols = part.tensor_cols,
            .rounding = {.values = format_.values, .block_rows = block_rows(part), .block_cols = block_cols(part)},
            .content = content,
            .dummy = dummy_scale(part.format.values)};
  }

  // Returns a weight of this linear. The caller adds the weight's parts.
  WeightSpec spec(const char* suffix, ir::DType dtype, ir::Shape shape) const {
    return {.name = fmt::format("{}.{}", name_, suffix), .type = {dtype, std::move(shape)}};
  }

  WeightSpec values() const {
    const std::int64_t per_byte = format_.values_of_byte();
    WeightSpec weight = spec("weight", ir::DType::kUInt8, {sum_of_rows(parts_), parts_[0].cols / per_byte});
    for (const LinearPart& part : parts_) {
      const std::int64_t bytes = part.tensor_cols / per_byte;
      weight.parts.push_back({.tensor = tensor_of(part, names_.values),
                              .shape = {part.tensor_rows, bytes},
                              .slice = slice_of_blocks(part, 1, per_byte),
                              .storage = value_storage(part, bytes)});
      if (const char* scale = input_scale(part.format))
        weight.parts.back().beside.push_back(fmt::format("{}.{}", part.tensor, scale));
    }
    return weight;
  }

  Storage value_storage(const LinearPart& part, std::int64_t bytes) const {
    if (of_numbers()) return rounded(part, RoundedStorage::Content::kValues);
    if (format_.values == QuantisedFormat::Values::kInt4)
      return NibbleStorage{.rows = part.tensor_rows,
                           .cols = part.tensor_cols,
                           .transposed = transposed(),
                           .packed_dim = part.format.spelling == Spelling::kGptq ? 0 : 1,
                           .interleaved = part.format.spelling == Spelling::kAwq,
                           .shape = names_.shape != nullptr ? fmt::format("{}.{}", part.tensor, names_.shape) : ""};
    PackedStorage storage{.tensor_shape = {part.tensor_rows, bytes}, .row_stride = bytes};
    if (format_.values != QuantisedFormat::Values::kE2M1) storage.content = PackedStorage::Content::kBytes;
    if (format_.values == QuantisedFormat::Values::kE4M3) storage.dtype = StoredDtype::kF8E4M3;
    if (format_.values == QuantisedFormat::Values::kInt8) storage.dtype = StoredDtype::kI8;
    return storage;
  }

  WeightSpec scales() const {
    // If columns are permuted, a column may use any scale of its row, so the table has all scales of the row.
    const std::int64_t across = format_.groups ? groups_ : ceil_div(parts_[0].cols, format_.group_cols);
    const std::int64_t down = ceil_div(sum_of_rows(parts_), format_.group_rows);
    WeightSpec weight = spec("scales", has_small_scales() ? ir::DType::kUInt8 : ir::DType::kFloat32, {down, across});
    for (const LinearPart& part : parts_) {
      const std::string tensor = tensor_of(part, names_.scales);
      if (has_small_scales()) {
        const std::int64_t cols = part.tensor_cols / kNvfp4Group;
        weight.parts.push_back({.tensor = tensor,
                                .shape = {part.tensor_rows, cols},
                                .slice = slice_of_blocks(part, 1, kNvfp4Group),
                                .storage = small_scale_storage(part, cols)});
        continue;
      }
      const std::int64_t step_rows = format_.group_rows;
      const std::int64_t step_cols = format_.groups ? block_cols(part) : format_.group_cols;
      weight.parts.push_back({.tensor = tensor,
                              .shape = {ceil_div(part.tensor_rows, step_rows), ceil_div(part.tensor_cols, step_cols)},
                              .slice = slice_of_table(part, step_rows, step_cols),
                              .storage = scale_storage(part, step_rows, step_cols)});
    }
    return weight;
  }

  Storage small_scale_storage(const LinearPart& part, std::int64_t cols) const {
    if (of_numbers()) {
      RoundedStorage storage = rounded(part, RoundedStorage::Content::kScales);
      storage.step_cols = kNvfp4Group;
      return storage;
    }
    return PackedStorage{.tensor_shape = {part.tensor_rows, cols},
                         .row_stride = cols,
                         .content = PackedStorage::Content::kScales,
                         .dtype = StoredDtype::kF8E4M3};
  }

  Storage scale_storage(const LinearPart& part, std::int64_t step_rows, std::int64_t step_cols) const {
    const auto with_steps = [&](auto storage) -> Storage {
      storage.step_rows = step_rows;
      storage.step_cols = step_cols;
      return storage;
    };
    if (of_numbers()) return with_steps(rounded(part, RoundedStorage::Content::kScales));
    return with_steps(grid(part, block_rows(part), block_cols(part)));
  }

  // Returns the part's slice of a table of scales or zero points. If columns are permuted and the part is a slice of
  // columns, the part needs the whole table.
  TensorSlice slice_of_table(const LinearPart& part, std::int64_t rows, std::int64_t cols) const {
    return format_.groups && by_columns(part) ? TensorSlice{} : slice_of_blocks(part, rows, cols);
  }

  GridStorage grid(const LinearPart& part, std::int64_t rows, std::int64_t cols) const {
    return {.rows = part.tensor_rows,
            .cols = part.tensor_cols,
            .block_rows = rows,
            .block_cols = cols,
            .transposed = transposed(),
            .exponents = part.format.is_mxfp4(),
            .dummy = dummy_scale(part.format.values)};
  }

  WeightSpec factor() const {
    WeightSpec weight = spec("factor", ir::DType::kFloat32, {sum_of_rows(parts_)});
    for (const LinearPart& part : parts_)
      weight.parts.push_back({.tensor = tensor_of(part, names_.factor),
                              .shape = {part.tensor_rows},
                              .slice = by_columns(part) ? TensorSlice{} : part.slice,
                              .storage = factor_storage(part)});
    return weight;
  }

  Storage factor_storage(const LinearPart& part) const {
    if (of_numbers()) return rounded(part, RoundedStorage::Content::kFactor);
    GridStorage storage = grid(part, part.tensor_rows, part.tensor_cols);
    storage.step_cols = part.tensor_cols;
    storage.reciprocal = part.format.spelling == Spelling::kNvfp4Packed;
    return storage;
  }

  WeightSpec zeros() const {
    const std::int64_t across = format_.groups ? groups_ : ceil_div(parts_[0].cols, format_.group_cols);
    WeightSpec weight = spec("zeros", ir::DType::kUInt8, {sum_of_rows(parts_), across});
    for (const LinearPart& part : parts_) {
      NibbleStorage storage{.rows = part.tensor_rows,
                            .cols = part.tensor_cols,
                            .transposed = transposed(),
                            .packed_dim = transposed() ? 1 : 0,
                            .interleaved = part.format.spelling == Spelling::kAwq,
                            .pairs = false,
                            .add = part.format.zeros_less_one ? 1 : 0,
                            .block = block_cols(part)};
      storage.step = format_.groups ? storage.block : format_.group_cols;
      weight.parts.push_back({.tensor = fmt::format("{}.{}", part.tensor, names_.zeros),
                              .shape = {part.tensor_rows, ceil_div(part.tensor_cols, storage.step)},
                              .slice = slice_of_table(part, 1, storage.step),
                              .storage = storage});
    }
    return weight;
  }

  WeightSpec groups() const {
    const LinearPart& part = parts_[0];
    WeightSpec weight = spec("groups", ir::DType::kInt32, {part.cols});
    weight.parts.push_back({.tensor = fmt::format("{}.{}", part.tensor, names_.groups),
                            .shape = {part.tensor_cols},
                            .slice = {.dim = 0, .begin = first_col(part), .size = part.cols},
                            .storage = IndexStorage{.limit = groups_}});
    return weight;
  }

  const std::string& name_;
  std::span<const LinearPart> parts_;
  Grid grid_;
  QuantisedFormat format_;
  Names names_;
  std::int64_t groups_;  // columns of the stored table of scales
};

// Checks that the slice does not begin or end within a group of `cols` columns that are stored together.
Status check_slice(const LinearPart& part, std::int64_t cols, const char* what) {
  const bool whole = part.tensor_cols % cols == 0 && first_col(part) % cols == 0 && part.cols % cols == 0;
  if (whole) return ok_status();
  return invalid_argument(fmt::format("{}: columns {} to {} of {}; accepted: multiples of {}, {}", part.tensor,
                                      first_col(part), first_col(part) + part.cols, part.tensor_cols, cols, what));
}

}  // namespace

std::string_view rounding_of_inputs(const WeightFormat& format) {
  switch (format.inputs) {
    case WeightFormat::Inputs::kTensor:
    case WeightFormat::Inputs::kToken: return "token";
    case WeightFormat::Inputs::kGroup: return "group";
    case WeightFormat::Inputs::kBlock: return "block";
    default: return "plain";
  }
}

WeightSpec unquantised_weight(const std::string& name, std::span<const LinearPart> parts, ir::DType dtype) {
  WeightSpec weight{.name = name + ".weight", .type = {dtype, {sum_of_rows(parts), parts[0].cols}}};
  for (const LinearPart& part : parts) {
    weight.parts.push_back({.tensor = matrix_tensor(part),
                            .shape = {part.tensor_rows, part.tensor_cols},
                            .slice = part.slice,
                            .storage = part.storage});
    if (part.padded) weight.parts.back().padded = {part.rows, part.cols};
  }
  return weight;
}

WeightSpec bias_weight(const std::string& name, std::span<const LinearPart> parts, ir::DType dtype) {
  WeightSpec bias{.name = name + ".bias", .type = {dtype, {sum_of_rows(parts)}}};
  for (const LinearPart& part : parts) {
    bias.parts.push_back({.tensor = part.tensor + ".bias", .shape = {part.tensor_rows}, .slice = part.bias_slice});
    if (part.padded) bias.parts.back().padded = {part.rows};
  }
  return bias;
}

Result<QuantisedWeights> quantised_weights(const std::string& name, std::span<const LinearPart> parts, LastBlock last) {
  for (const LinearPart& part : parts) {
    if (part.padded) return unimplemented(fmt::format("{}: a quantised matrix with zeros behind it", part.tensor));
    if (part.format.is_nvfp4()) TRY(check_slice(part, kNvfp4Group, "as so many values share a scale"));
    if (part.format.values == FormatValues::kInt4 || part.format.is_mxfp4())
      TRY(check_slice(part, 2, "as a byte has two values"));
    if (part.format.codes) {
      TRY(check_slice(part, block_codes_format(part.format.blocks)->group_cols, "as so many values share a scale"));
    } else if (part.format.is_blocks()) {
      TRY(check_slice(part, block_type_info(part.format.blocks).elements, "as a block has so many values"));
    }
  }
  if (parts[0].format.codes) return block_code_weights(name, parts);
  if (parts[0].format.is_blocks()) return block_weights(name, parts);
  return Joiner(name, parts, last).join();
}

std::size_t end_of_run(std::span<const LinearPart> parts) {
  std::size_t end = 1;
  while (end < parts.size() && parts[end].format == parts[0].format &&
         (!parts[0].format.ordered || parts[end].tensor == parts[0].tensor) &&
         (!parts[0].format.is_blocks() || parts[0].format.codes || parts[end - 1].rows % kPackedRows == 0))
    ++end;
  return end;
}

}  // namespace tessera
