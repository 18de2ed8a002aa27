#include "tessera/model/quantise/quantised_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tessera/base/ceil_div.h"
#include "tessera/base/json.h"
#include "tessera/model/weights/matrix_read.h"
#include "tessera/ops/quantised/blocks/block_bytes.h"

namespace tessera {
namespace {

using Spelling = WeightFormat::Spelling;

// The suffixes of the tensors of a linear.
constexpr std::string_view kParts[] = {"weight",
                                       "weight_packed",
                                       "weight_scale",
                                       "weight_scale_inv",
                                       "weight_scale_2",
                                       "weight_shape",
                                       "weight_global_scale",
                                       "input_scale",
                                       "input_global_scale",
                                       "weight_zero_point",
                                       "weight_g_idx",
                                       "qweight",
                                       "qzeros",
                                       "scales",
                                       "g_idx"};

// The values and scales of a matrix [rows, cols].
struct LinearTensors {
  WeightFormat format;
  std::int64_t cols = 0;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;
  std::optional<StridedRows> values;  // 8-bit values
  const std::byte* packed = nullptr;  // 4-bit values, two in a byte
  std::optional<StridedRows> scales;
  const std::byte* exponents = nullptr;  // MXFP4's scales, instead of `scales`
  float factor = 1;
};

class QuantisedNumbers : public TensorElements {
 public:
  explicit QuantisedNumbers(LinearTensors matrix) : m_(std::move(matrix)) {}

  void read(std::int64_t first, std::int64_t count, std::byte* to) const override {
    std::vector<float> numbers;
    std::vector<float> scales;
    while (count > 0) {
      const std::int64_t col = first % m_.cols;
      const std::int64_t now = std::min(count, m_.cols - col);
      numbers.resize(static_cast<std::size_t>(now));
      read_row(first / m_.cols, col, numbers, scales);
      std::memcpy(to, numbers.data(), numbers.size() * sizeof(float));
      to += numbers.size() * sizeof(float);
      first += now;
      count -= now;
    }
  }

 private:
  void read_row(std::int64_t row, std::int64_t col, std::vector<float>& numbers, std::vector<float>& scales) const {
    const std::int64_t first_block = col / m_.block_cols;
    const std::int64_t end_block = ceil_div(col + std::ssize(numbers), m_.block_cols);
    scales.resize(static_cast<std::size_t>(end_block - first_block));
    read_scales(row / m_.block_rows, first_block, scales);
    if (m_.values)
      m_.values->read(row, col, numbers);
    else
      unpack(row, col, numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::int64_t block = (col + static_cast<std::int64_t>(i)) / m_.block_cols - first_block;
      numbers[i] *= scales[static_cast<std::size_t>(block)];
    }
  }

  void read_scales(std::int64_t row, std::int64_t first, std::vector<float>& scales) const {
    if (m_.exponents == nullptr) {
      m_.scales->read(row, first, scales);
      for (float& scale : scales) scale *= m_.factor;
      return;
    }
    const std::byte* from = m_.exponents + row * ceil_div(m_.cols, m_.block_cols) + first;
    for (float& scale : scales) scale = 2 * block_bytes::half_e8m0(static_cast<std::uint32_t>(*from++));
  }

  void unpack(std::int64_t row, std::int64_t col, std::vector<float>& numbers) const {
    const std::byte* const bytes = m_.packed + row * m_.cols / 2;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::int64_t at = col + static_cast<std::int64_t>(i);
      const auto code = static_cast<std::uint32_t>(bytes[at / 2]) >> (4 * (at % 2)) & 15u;
      numbers[i] = m_.format.values == WeightFormat::Values::kInt4
                       ? static_cast<float>(static_cast<int>(code) - 8)
                       : 0.5F * static_cast<float>(block_bytes::kE2M1Doubled[code]);
    }
  }

  LinearTensors m_;
};

bool is_readable(const WeightFormat& format) {
  switch (format.spelling) {
    case Spelling::kScaled:
    case Spelling::kNvfp4Packed:
    case Spelling::kNvfp4:
    case Spelling::kMxfp4Packed:
    case Spelling::kMxfp4: return true;
    case Spelling::kPacked: return !format.zeros && !format.ordered;
    default: return false;
  }
}

std::string_view values_name(Spelling spelling) {
  const bool packed =
      spelling == Spelling::kPacked || spelling == Spelling::kNvfp4Packed || spelling == Spelling::kMxfp4Packed;
  return packed ? "weight_packed" : "weight";
}

}  // namespace

Result<const StoredTensor*> QuantisedSource::part(const std::string& module, const std::string& name,
                                                  std::int64_t elements) const {
  const StoredTensor* tensor = checkpoint_.find(module + "." + name);
  if (tensor != nullptr && tensor->num_elements() == elements) return tensor;
  return data_loss(fmt::format("{}: tensor {}.{} is {}; accepted: {} elements", checkpoint_.model_path(), module, name,
                               tensor == nullptr ? "missing" : shape_text(tensor->shape), elements));
}

Result<float> QuantisedSource::number(const std::string& module, const std::string& name) const {
  const StoredTensor* tensor = TRY(part(module, name, 1));
  float number = 0;
  if (tensor->dtype == StoredDtype::kF32) std::memcpy(&number, tensor->data.data(), sizeof number);
  if (std::isfinite(number) && number > 0) return number;
  return data_loss(fmt::format("{}: tensor {}.{} is {} of {}; accepted: F32 above 0", checkpoint_.model_path(), module,
                               name, number, stored_dtype_name(tensor->dtype)));
}

Result<std::optional<QuantisedSource::Linear>> QuantisedSource::find(const StoredTensor& tensor) const {
  const std::size_t dot = tensor.name.rfind('.');
  if (!formats_.any() || dot == std::string::npos) return std::optional<Linear>();
  const std::string module = tensor.name.substr(0, dot);
  const std::string_view name = std::string_view(tensor.name).substr(dot + 1);
  if (std::ranges::find(kParts, name) == std::end(kParts)) return std::optional<Linear>();
  const auto stored = [&](std::string_view of) -> std::optional<StoredDtype> {
    const StoredTensor* found = checkpoint_.find(of);
    return found != nullptr ? std::optional(found->dtype) : std::nullopt;
  };
  if (!has_matrix(module, stored)) return std::optional<Linear>();
  const WeightFormat format = TRY(formats_.of(module, stored));
  if (format.is_unquantised()) return std::optional<Linear>();
  if (!is_readable(format))
    return unimplemented(
        fmt::format("{}: {} is stored as {}; accepted: FP8, INT8, NVFP4, MXFP4, and int4 of compressed-tensors "
                    "without zero points",
                    checkpoint_.model_path(), module, describe(format)));
  Linear linear;
  linear.numbers.name = module + ".weight";
  linear.numbers.dtype = StoredDtype::kF32;
  linear.format = describe(format);
  // A linear has several tensors: its values, its scales and others. Only the call for the tensor of values reads them
  // all. For the other tensors, the function returns a Linear without elements.
  if (name != values_name(format.spelling)) return std::optional(std::move(linear));
  if (tensor.shape.size() != 2)
    return data_loss(fmt::format("{}: tensor {}: shape is {}; accepted: two dimensions", checkpoint_.model_path(),
                                 Json(tensor.name).dump(), shape_text(tensor.shape)));
  const bool bytes = format.spelling == Spelling::kScaled;
  constexpr std::int64_t kValuesOfByte = 2;
  const std::int64_t rows = tensor.shape[0];
  const std::int64_t cols =
      bytes ? tensor.shape[1] : tensor.shape[1] * stored_dtype_bytes(tensor.dtype) * kValuesOfByte;
  LinearTensors matrix{.format = format,
                       .cols = cols,
                       .block_rows = format.block_rows == 0 ? rows : format.block_rows,
                       .block_cols = format.block_cols == 0 ? cols : format.block_cols,
                       .values = {},
                       .scales = {}};
  if (bytes)
    matrix.values = TRY(StridedRows::of(tensor, {.rows = rows, .cols = cols, .offset = 0, .row_stride = cols}));
  else
    matrix.packed = tensor.data.data();
  const std::int64_t down = ceil_div(rows, matrix.block_rows);
  const std::int64_t across = ceil_div(cols, matrix.block_cols);
  const StoredTensor* scales = TRY(part(module, bytes ? format.scale : "weight_scale", down * across));
  if (format.is_mxfp4() && !is_exponent_dtype(scales->dtype))
    return data_loss(fmt::format("{}: tensor {} is {}; accepted: exponents, U8 or F8_E8M0", checkpoint_.model_path(),
                                 Json(scales->name).dump(), stored_dtype_name(scales->dtype)));
  if (format.is_mxfp4())
    matrix.exponents = scales->data.data();
  else
    matrix.scales = TRY(StridedRows::of(*scales, {.rows = down, .cols = across, .offset = 0, .row_stride = across}));
  if (format.spelling == Spelling::kNvfp4Packed) matrix.factor = 1.0F / TRY(number(module, "weight_global_scale"));
  if (format.spelling == Spelling::kNvfp4) matrix.factor = TRY(number(module, "weight_scale_2"));
  linear.bytes = std::ssize(tensor.data) + std::ssize(scales->data);
  linear.numbers.shape = {rows, cols};
  linear.numbers.made = std::make_shared<const QuantisedNumbers>(std::move(matrix));
  return std::optional(std::move(linear));
}

}  // namespace tessera
