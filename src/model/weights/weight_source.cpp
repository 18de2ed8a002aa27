#include "tessera/model/weights/weight_source.h"

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/model/weights/matrix_read.h"
#include "tessera/model/weights/random_fill.h"

namespace tessera {
namespace {

// A uniform distribution with Hugging Face's usual standard deviation of 0.02.
constexpr float kDummyScale = 0.0346F;

// 2^-7: with this factor, weights of uniform 4-bit values have about the same mean square as other weights.
constexpr auto kDummyExponent = std::byte{120};

// Fills element by element of the stored tensor, so that its other parts, read or not, have the same values.
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
  if (storage.content == PackedStorage::Content::kExponents) {
    std::ranges::fill(to, kDummyExponent);
    return;
  }
  const RowPieces pieces(runs, cols);
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < pieces.size(); ++i) {
    const RowPiece piece = pieces[i];
    fill_random_bytes(to.subspan(static_cast<std::size_t>(piece.at), static_cast<std::size_t>(piece.count)),
                      storage.offset + piece.row * storage.row_stride + piece.col, seed);
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
  constexpr std::array kBytes{StoredDtype::kU8};
  const StoredTensor stored = TRY(checkpoint.get(part.tensor, storage.tensor_shape, kBytes));
  const std::int64_t rows = part.shape.size() == 2 ? part.shape[0] : 1;
  return read_packed(
      stored, {.rows = rows, .cols = part.shape.back(), .offset = storage.offset, .row_stride = storage.row_stride},
      runs, to);
}

}  // namespace

WeightSource checkpoint_source(Checkpoint checkpoint) {
  const auto shared = std::make_shared<const Checkpoint>(std::move(checkpoint));
  return [shared](const WeightSpec&, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
                  std::span<std::byte> to) -> Status {
    return std::visit([&](const auto& storage) { return read(*shared, part, storage, dtype, runs, to); }, part.storage);
  };
}

WeightSource dummy_source(std::uint64_t seed) {
  return [seed](const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
                std::span<std::byte> to) { return fill_dummy(spec, part, dtype, runs, seed, to); };
}

}  // namespace tessera
