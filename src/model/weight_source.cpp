#include "tessera/model/weight_source.h"

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/model/matrix_read.h"
#include "tessera/model/random_fill.h"

namespace tessera {
namespace {

// A uniform distribution with Hugging Face's usual standard deviation of 0.02.
constexpr float kDummyScale = 0.0346F;

Status fill_dummy(const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
                  std::uint64_t seed, std::span<std::byte> to) {
  if (spec.dummy_init == WeightSpec::Init::kUniform)
    return fill_random_runs(to, dtype, runs, tensor_seed(seed, part.tensor), kDummyScale);
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
  const std::vector<std::int64_t> stored_shape(part.shape.rbegin(), part.shape.rend());
  return read_transposed(TRY(checkpoint.get(part.tensor, stored_shape)), runs, dtype, to);
}

Status read(const Checkpoint& checkpoint, const WeightPart& part, const ScaledStorage& storage, StoredDtype dtype,
            const SliceRuns& runs, std::span<std::byte> to) {
  const StoredTensor values = TRY(checkpoint.get(part.tensor, part.shape, kQuantisedDtypes));
  const StoredTensor scale = TRY(checkpoint.get(storage.scale));
  return read_scaled(values, {.tensor = scale, .block_rows = storage.block_rows, .block_cols = storage.block_cols},
                     runs, dtype, to);
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
