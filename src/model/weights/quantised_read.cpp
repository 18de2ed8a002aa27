#include "tessera/model/weights/quantised_read.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "tessera/base/ceil_div.h"
#include "tessera/model/weights/stored_codec.h"

namespace tessera {
namespace {

constexpr std::int64_t kParallelNibbles = 1 << 16;

// The bit positions, in units of four bits, of the eight values in a word.
constexpr std::array<std::int64_t, 8> kInOrder{0, 1, 2, 3, 4, 5, 6, 7};
constexpr std::uint8_t kNoExponent = 255;
// The position of each value in a word of AWQ. The eight positions of the word contain the values 0, 2, 4, 6, 1, 3, 5
// and 7.
constexpr std::array<std::int64_t, 8> kInterleaved{0, 4, 1, 5, 2, 6, 3, 7};

template <class T>
T element(const StoredTensor& tensor, std::int64_t at) {
  T value;
  if (tensor.made != nullptr) {
    tensor.made->read(at, 1, reinterpret_cast<std::byte*>(&value));
    return value;
  }
  std::memcpy(&value, tensor.data.data() + at * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

Status expect_length(const StoredTensor& tensor, const SliceRuns& runs, std::size_t bytes, std::span<std::byte> dst) {
  if (dst.size() == static_cast<std::size_t>(runs.num_elements()) * bytes) return ok_status();
  return internal_error(fmt::format("tensor \"{}\": {} elements of {} bytes are read to {} bytes", tensor.name,
                                    runs.num_elements(), bytes, dst.size()));
}

// A part contains the values, the scales or the indices of a quantised matrix. `runs` describes a slice of the part.
// Returns where element `i` of the slice lies in the part, as a row-major index.
std::int64_t part_index(const SliceRuns& runs, std::int64_t i) {
  return runs.start + i / runs.run * runs.stride + i % runs.run;
}

// Returns the scale for an exponent (OCP Microscaling Formats 1.0, E8M0).
float power_of_two(std::uint8_t exponent) {
  return exponent == kNoExponent ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, exponent - 127);
}

float scale_at(const StoredTensor& scales, std::int64_t at) {
  switch (scales.dtype) {
    case StoredDtype::kF16: return Codec<StoredDtype::kF16>::decode(element<std::uint16_t>(scales, at));
    case StoredDtype::kBF16: return Codec<StoredDtype::kBF16>::decode(element<std::uint16_t>(scales, at));
    case StoredDtype::kU8:
    case StoredDtype::kF8E8M0: return power_of_two(element<std::uint8_t>(scales, at));
    default: return element<float>(scales, at);
  }
}

// Reads 4-bit values from a tensor of words.
class Nibbles {
 public:
  Nibbles(const StoredTensor& words, const NibbleStorage& storage)
      : words_(words),
        storage_(storage),
        places_(storage.interleaved ? kInterleaved : kInOrder),
        words_across_(words.shape[1]) {}

  std::uint8_t at(std::int64_t row, std::int64_t col) const {
    std::int64_t i = row;
    std::int64_t j = col * storage_.step / storage_.block;
    if (storage_.transposed) std::swap(i, j);
    std::int64_t& packed = storage_.packed_dim == 0 ? i : j;
    const std::int64_t place = places_[static_cast<std::size_t>(packed % 8)];
    packed /= 8;
    const auto word = element<std::uint32_t>(words_, i * words_across_ + j);
    return static_cast<std::uint8_t>((word >> (4 * place) & 15u) + static_cast<std::uint32_t>(storage_.add));
  }

 private:
  const StoredTensor& words_;
  const NibbleStorage& storage_;
  const std::array<std::int64_t, 8>& places_;
  std::int64_t words_across_;
};

}  // namespace

Status read_nibbles(const StoredTensor& words, const NibbleStorage& storage, const SliceRuns& runs,
                    std::span<std::byte> dst) {
  TRY(expect_length(words, runs, 1, dst));
  const Nibbles nibbles(words, storage);
  const std::int64_t bytes_across = storage.pairs ? storage.cols / 2 : ceil_div(storage.cols, storage.step);
  const std::int64_t count = runs.num_elements();
#pragma omp parallel for schedule(static) if (count > kParallelNibbles)
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = part_index(runs, i);
    const std::int64_t row = at / bytes_across;
    const std::int64_t col = at % bytes_across;
    const auto value = storage.pairs
                           ? static_cast<std::uint8_t>(nibbles.at(row, 2 * col) | nibbles.at(row, 2 * col + 1) << 4)
                           : nibbles.at(row, col);
    dst[static_cast<std::size_t>(i)] = std::byte{value};
  }
  return ok_status();
}

Status read_grid(const StoredTensor& scales, const GridStorage& storage, const SliceRuns& runs,
                 std::span<std::byte> dst) {
  TRY(expect_length(scales, runs, sizeof(float), dst));
  const std::int64_t down = ceil_div(storage.rows, storage.block_rows);
  const std::int64_t across = ceil_div(storage.cols, storage.block_cols);
  if (scales.num_elements() != down * across)
    return invalid_argument(
        fmt::format("tensor \"{}\" has {} scales, of shape {}; accepted: {}, for a matrix of {} by "
                    "{} in blocks of {} by {}",
                    scales.name, scales.num_elements(), shape_text(scales.shape), down * across, storage.rows,
                    storage.cols, storage.block_rows, storage.block_cols));
  const std::int64_t steps_across = ceil_div(storage.cols, storage.step_cols);
  for (std::int64_t i = 0; i < runs.num_elements(); ++i) {
    const std::int64_t at = part_index(runs, i);
    const std::int64_t row = at / steps_across * storage.step_rows / storage.block_rows;
    const std::int64_t col = at % steps_across * storage.step_cols / storage.block_cols;
    const std::int64_t from = storage.transposed ? col * down + row : row * across + col;
    const float scale = scale_at(scales, from);
    if (!(scale > 0) || !std::isfinite(scale))
      return invalid_argument(
          fmt::format("tensor \"{}\": scale {} is {}; accepted: finite numbers above 0", scales.name, from, scale));
    const float value = storage.reciprocal ? 1.0F / scale : scale;
    std::memcpy(dst.data() + static_cast<std::size_t>(i) * sizeof(float), &value, sizeof(float));
  }
  return ok_status();
}

Status read_indices(const StoredTensor& stored, const IndexStorage& storage, const SliceRuns& runs,
                    std::span<std::byte> dst) {
  TRY(expect_length(stored, runs, sizeof(std::int32_t), dst));
  for (std::int64_t i = 0; i < runs.num_elements(); ++i) {
    const std::int64_t at = part_index(runs, i);
    const auto index = element<std::int32_t>(stored, at);
    if (index < 0 || index >= storage.limit)
      return invalid_argument(
          fmt::format("tensor \"{}\": element {} is {}; accepted: 0 to {}", stored.name, at, index, storage.limit - 1));
    std::memcpy(dst.data() + static_cast<std::size_t>(i) * sizeof(index), &index, sizeof(index));
  }
  return ok_status();
}

Status check_small_scales(const StoredTensor& stored, std::span<const std::byte> scales) {
  for (const std::byte scale : scales) {
    const auto bits = std::to_integer<std::uint8_t>(scale);
    if (bits == 0 || bits >= 0x7f)
      return invalid_argument(fmt::format("tensor \"{}\": a scale is {}; accepted: numbers above 0", stored.name,
                                          Codec<StoredDtype::kF8E4M3>::decode(bits)));
  }
  return ok_status();
}

Status check_exponents(const StoredTensor& stored, std::span<const std::byte> exponents) {
  if (std::ranges::find(exponents, std::byte{kNoExponent}) == exponents.end()) return ok_status();
  return invalid_argument(
      fmt::format("tensor \"{}\": an exponent of a scale is {}, which is no number; accepted: 0 to {}", stored.name,
                  kNoExponent, kNoExponent - 1));
}

Status check_stored_shape(const StoredTensor& stored, std::int64_t rows, std::int64_t cols) {
  if (stored.dtype != StoredDtype::kI64 || stored.num_elements() != 2)
    return invalid_argument(fmt::format("tensor \"{}\" is {} of shape {}; accepted: I64 of shape [2]", stored.name,
                                        stored_dtype_name(stored.dtype), shape_text(stored.shape)));
  const auto first = element<std::int64_t>(stored, 0);
  const auto second = element<std::int64_t>(stored, 1);
  if (first == rows && second == cols) return ok_status();
  return invalid_argument(fmt::format("tensor \"{}\" says [{}, {}]; accepted: [{}, {}], the model's shape", stored.name,
                                      first, second, rows, cols));
}

}  // namespace tessera
