#include "tessera/model/weights/weight_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/model/weights/block_read.h"
#include "tessera/model/weights/matrix_read.h"
#include "tessera/model/weights/quantised_read.h"
#include "tessera/model/weights/random_fill.h"
#include "tessera/model/weights/rounded_read.h"

namespace tessera {
namespace {

// Half the width of the uniform distribution of random weights. It is √3 times the standard deviation, for which
// Hugging Face usually chooses 0.02.
constexpr float kDummyScale = 0.0346F;

// The scale of each block in a random NVFP4 matrix: 1 in F8_E4M3. The matrix also has a second scale, which applies to
// all blocks.
constexpr auto kDummySmallScale = std::byte{0x38};

// The bits that may be set in random F8_E4M3 values. With only these bits all magnitudes are below 2, so no value is
// NaN.
constexpr auto kDummyE4M3 = std::byte{0xbf};

// The exponent of every scale in a random MXFP4 matrix. It stands for 2^(120 - 127) = 2^-7, with which uniform 4-bit
// values have about the same mean square as other random weights.
constexpr auto kDummyExponent = std::byte{120};

// Fills a strided part. The value of an element depends only on its index in the stored tensor, so that it is the same
// however the tensor is divided into parts.
Status fill_strided(const StridedStorage& storage, std::int64_t cols, StoredDtype dtype, const SliceRuns& runs,
                    std::uint64_t seed, std::span<std::byte> to) {
  const auto bytes = static_cast<std::size_t>(stored_dtype_bytes(dtype));
  const RowPieces pieces(runs, cols);
  for (std::int64_t i = 0; i < pieces.size(); ++i) {
    const RowPiece piece = pieces[i];
    const std::int64_t first = storage.offset + piece.row * storage.row_stride + piece.col * storage.col_stride;
    const bool dense = storage.col_stride == 1;
    const SliceRuns stored{.num_runs = dense ? 1 : piece.count,
                           .run = dense ? piece.count : 1,
                           .stride = storage.col_stride,
                           .start = first};
    TRY(fill_random_runs(
        to.subspan(static_cast<std::size_t>(piece.at) * bytes, static_cast<std::size_t>(piece.count) * bytes), dtype,
        stored, seed, kDummyScale));
  }
  return ok_status();
}

void fill_packed(const PackedStorage& storage, std::int64_t cols, const SliceRuns& runs, std::uint64_t seed,
                 std::span<std::byte> to) {
  using Content = PackedStorage::Content;
  if (storage.content == Content::kExponents || storage.content == Content::kScales) {
    std::ranges::fill(to, storage.content == Content::kScales ? kDummySmallScale : kDummyExponent);
    return;
  }
  const RowPieces pieces(runs, cols);
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < pieces.size(); ++i) {
    const RowPiece piece = pieces[i];
    fill_random_bytes(to.subspan(static_cast<std::size_t>(piece.at), static_cast<std::size_t>(piece.count)),
                      storage.offset + piece.row * storage.row_stride + piece.col, seed);
  }
  if (storage.dtype == StoredDtype::kF8E4M3)
    for (std::byte& value : to) value &= kDummyE4M3;
}

// Fills 4-bit values. Each byte depends only on its index in the part.
void fill_nibbles(const NibbleStorage& storage, const SliceRuns& runs, std::uint64_t seed, std::span<std::byte> to) {
  if (!storage.pairs) {
    std::ranges::fill(to, std::byte{8});  // zero points in the middle of 0 … 15
    return;
  }
  for (std::int64_t run = 0; run < runs.num_runs; ++run)
    fill_random_bytes(to.subspan(static_cast<std::size_t>(run * runs.run), static_cast<std::size_t>(runs.run)),
                      runs.start + run * runs.stride, seed);
}

void fill_floats(float value, std::span<std::byte> to) {
  for (std::size_t at = 0; at < to.size(); at += sizeof value) std::memcpy(to.data() + at, &value, sizeof value);
}

// Fills the values, the scales or the factor of a matrix that is quantised while it is read. The values are random, and
// scales and factor are constant, as in a random matrix that is stored quantised.
void fill_rounded(const RoundedStorage& storage, StoredDtype dtype, const SliceRuns& runs, std::uint64_t seed,
                  std::span<std::byte> to) {
  if (dtype == StoredDtype::kF32) return fill_floats(storage.dummy, to);
  const bool scales = storage.content == RoundedStorage::Content::kScales;
  PackedStorage bytes{.tensor_shape = {}, .row_stride = storage.cols / storage.rounding.values_of_byte()};
  if (scales) bytes.content = PackedStorage::Content::kScales;
  if (storage.rounding.values == Rounding::Values::kE4M3) bytes.dtype = StoredDtype::kF8E4M3;
  // The matrices of a stacked tensor have the same seed, because a seed belongs to a tensor. Adding the matrix's offset
  // to the seed gives each matrix different values.
  fill_packed(bytes, bytes.row_stride, runs, seed + static_cast<std::uint64_t>(storage.numbers.offset), to);
}

// Fills the group index of each column. Column c of C columns belongs to group c · limit / C.
void fill_indices(const IndexStorage& storage, std::int64_t columns, const SliceRuns& runs, std::span<std::byte> to) {
  for (std::int64_t i = 0; i < runs.run; ++i) {
    const auto index = static_cast<std::int32_t>((runs.start + i) * storage.limit / columns);
    std::memcpy(to.data() + static_cast<std::size_t>(i) * sizeof(index), &index, sizeof(index));
  }
}

Status fill_dummy(const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
                  std::uint64_t seed, std::span<std::byte> to) {
  if (spec.dummy_init == WeightSpec::Init::kUniform) {
    const std::uint64_t of_tensor = tensor_seed(seed, part.tensor);
    if (const auto* strided = std::get_if<StridedStorage>(&part.storage))
      return fill_strided(*strided, part.shape.back(), dtype, runs, of_tensor, to);
    if (const auto* packed = std::get_if<PackedStorage>(&part.storage)) {
      fill_packed(*packed, part.shape.back(), runs, of_tensor, to);
      return ok_status();
    }
    if (const auto* nibbles = std::get_if<NibbleStorage>(&part.storage)) {
      fill_nibbles(*nibbles, runs, of_tensor, to);
      return ok_status();
    }
    if (const auto* grid = std::get_if<GridStorage>(&part.storage)) {
      fill_floats(grid->dummy, to);
      return ok_status();
    }
    if (const auto* rounded = std::get_if<RoundedStorage>(&part.storage)) {
      fill_rounded(*rounded, dtype, runs, of_tensor, to);
      return ok_status();
    }
    if (const auto* indices = std::get_if<IndexStorage>(&part.storage)) {
      fill_indices(*indices, part.shape[0], runs, to);
      return ok_status();
    }
    return fill_random_runs(to, dtype, runs, of_tensor, kDummyScale);
  }
  const std::vector<float> ones(static_cast<std::size_t>(runs.num_elements()), 1.0F);
  const StoredTensor source{.name = part.tensor,
                            .dtype = StoredDtype::kF32,
                            .shape = {static_cast<std::int64_t>(ones.size())},
                            .data = std::as_bytes(std::span(ones))};
  return copy_tensor(source, dtype, to);
}

Status read(const Checkpoint& checkpoint, const WeightPart& part, const PlainStorage& /*storage*/, StoredDtype dtype,
            const SliceRuns& runs, std::span<std::byte> to) {
  return copy_runs(TRY(checkpoint.get(part.tensor, part.shape)), runs, dtype, to);
}

Status read(const Checkpoint& checkpoint, const WeightPart& part, const TransposedStorage& /*storage*/,
            StoredDtype dtype, const SliceRuns& runs, std::span<std::byte> to) {
  return read_transposed(TRY(checkpoint.get(part.tensor, stored_shape(part))), runs, dtype, to);
}

Status read(const Checkpoint& checkpoint, const WeightPart& part, const StridedStorage& storage, StoredDtype dtype,
            const SliceRuns& runs, std::span<std::byte> to) {
  const StoredTensor stored = TRY(checkpoint.get(part.tensor, storage.tensor_shape));
  const std::int64_t cols = part.shape.back();
  const std::int64_t rows = part.shape.size() == 2 ? part.shape[0] : 1;
  return read_strided(stored,
                      {.rows = rows,
                       .cols = cols,
                       .offset = storage.offset,
                       .row_stride = storage.row_stride,
                       .col_stride = storage.col_stride},
                      runs, dtype, to);
}

Status read(const Checkpoint& checkpoint, const WeightPart& part, const ScaledStorage& storage, StoredDtype dtype,
            const SliceRuns& runs, std::span<std::byte> to) {
  const StoredTensor values = TRY(checkpoint.get(part.tensor, part.shape, kQuantisedDtypes));
  const StoredTensor scale = TRY(checkpoint.get(storage.scale));
  return read_scaled(values, {.tensor = scale, .block_rows = storage.block_rows, .block_cols = storage.block_cols},
                     runs, dtype, to);
}

Status read(const Checkpoint& checkpoint, const WeightPart& part, const PackedStorage& storage, StoredDtype /*dtype*/,
            const SliceRuns& runs, std::span<std::byte> to) {
  const bool exponents = storage.content == PackedStorage::Content::kExponents;
  const std::array own{storage.dtype};
  const StoredTensor stored = TRY(checkpoint.get(
      part.tensor, storage.tensor_shape, exponents ? std::span<const StoredDtype>(kExponentDtypes) : std::span(own)));
  const std::int64_t rows = part.shape.size() == 2 ? part.shape[0] : 1;
  TRY(read_packed(stored,
                  {.rows = rows, .cols = part.shape.back(), .offset = storage.offset, .row_stride = storage.row_stride},
                  runs, to));
  if (exponents) return check_exponents(stored, to);
  return storage.content == PackedStorage::Content::kScales ? check_small_scales(stored, to) : ok_status();
}

Status read(const Checkpoint& checkpoint, const WeightPart& part, const NibbleStorage& storage, StoredDtype /*dtype*/,
            const SliceRuns& runs, std::span<std::byte> to) {
  constexpr std::array kWords{StoredDtype::kI32};
  if (!storage.shape.empty()) {
    constexpr std::array kSizes{StoredDtype::kI64};
    TRY(check_stored_shape(TRY(checkpoint.get(storage.shape, kSizes)), storage.rows, storage.cols));
  }
  return read_nibbles(TRY(checkpoint.get(part.tensor, stored_shape(part), kWords)), storage, runs, to);
}

Status read(const Checkpoint& checkpoint, const WeightPart& part, const GridStorage& storage, StoredDtype /*dtype*/,
            const SliceRuns& runs, std::span<std::byte> to) {
  const std::span<const StoredDtype> accepted =
      storage.exponents ? std::span<const StoredDtype>(kExponentDtypes) : std::span<const StoredDtype>(kWeightDtypes);
  return read_grid(TRY(checkpoint.get(part.tensor, accepted)), storage, runs, to);
}

Status read(const Checkpoint& checkpoint, const WeightPart& part, const BlockStorage& storage, StoredDtype /*dtype*/,
            const SliceRuns& runs, std::span<std::byte> to) {
  return read_blocks(TRY(checkpoint.get(part.tensor, {storage.rows, storage.cols})), storage, runs, to);
}

Status read(const Checkpoint& checkpoint, const WeightPart& part, const IndexStorage& storage, StoredDtype /*dtype*/,
            const SliceRuns& runs, std::span<std::byte> to) {
  constexpr std::array kIndices{StoredDtype::kI32};
  return read_indices(TRY(checkpoint.get(part.tensor, part.shape, kIndices)), storage, runs, to);
}

// A cache of the factors of matrices. The key is a tensor's name and the offset of the matrix in this tensor. A factor
// is needed for three parts: the values, the scales and the factor itself. Factors are cached because the computation
// of a factor reads the whole matrix.
using Factors = std::map<std::pair<std::string, std::int64_t>, float>;

Status read(const Checkpoint& checkpoint, const WeightPart& part, const RoundedStorage& storage, Factors& factors,
            const SliceRuns& runs, std::span<std::byte> to) {
  const StoredTensor stored = TRY(checkpoint.get(part.tensor, storage.numbers.tensor_shape));
  if (!storage.rounding.has_factor()) return read_rounded(stored, storage, 1.0F, runs, to);
  const std::pair key(part.tensor, storage.numbers.offset);
  auto factor = factors.find(key);
  if (factor == factors.end()) factor = factors.emplace(key, TRY(read_factor(stored, storage))).first;
  return read_rounded(stored, storage, factor->second, runs, to);
}

}  // namespace

WeightSource checkpoint_source(Checkpoint checkpoint) {
  return checkpoint_source(std::make_shared<const Checkpoint>(std::move(checkpoint)));
}

WeightSource checkpoint_source(std::shared_ptr<const Checkpoint> checkpoint) {
  return [checkpoint = std::move(checkpoint), factors = std::make_shared<Factors>()](
             const WeightSpec&, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
             std::span<std::byte> to) -> Status {
    TRY(std::visit(
        [&]<class T>(const T& storage) {
          if constexpr (std::is_same_v<T, RoundedStorage>) {
            return read(*checkpoint, part, storage, *factors, runs, to);
          } else {
            return read(*checkpoint, part, storage, dtype, runs, to);
          }
        },
        part.storage));
    return checkpoint->check_whole();
  };
}

WeightSource dummy_source(std::uint64_t seed) {
  return [seed](const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
                std::span<std::byte> to) { return fill_dummy(spec, part, dtype, runs, seed, to); };
}

}  // namespace tessera
