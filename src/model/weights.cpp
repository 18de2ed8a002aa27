#include "tessera/model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tessera/base/progress.h"
#include "tessera/device/alignment.h"
#include "tessera/model/random_fill.h"

namespace tessera {
namespace {

Result<StoredDtype> stored_dtype_of(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kFloat32: return StoredDtype::kF32;
    case ir::DType::kFloat16: return StoredDtype::kF16;
    case ir::DType::kBFloat16: return StoredDtype::kBF16;
    default: return unimplemented(fmt::format("weights of type {}", ir::dtype_name(dtype)));
  }
}

// Bytes of a constant shape.
Result<std::size_t> bytes_of(const WeightSpec& spec) {
  return static_cast<std::size_t>(TRY(ir::size_bytes(spec.type, {}).with_context(spec.name)));
}

// A uniform distribution with Hugging Face's usual standard deviation of 0.02.
constexpr float kDummyScale = 0.0346F;

Status fill_dummy(const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, std::uint64_t seed,
                  std::span<std::byte> to) {
  if (spec.dummy_init == WeightSpec::Init::kUniform) {
    return fill_random(to, dtype, part.shape, part.slice, tensor_seed(seed, part.tensor), kDummyScale);
  }
  const std::vector<float> ones(to.size() / static_cast<std::size_t>(stored_dtype_bytes(dtype)), 1.0F);
  const StoredTensor source{.name = part.tensor,
                            .dtype = StoredDtype::kF32,
                            .shape = {static_cast<std::int64_t>(ones.size())},
                            .data = std::as_bytes(std::span(ones))};
  return copy_tensor(source, dtype, to);
}

}  // namespace

// Lays the weights out in one allocation and fills every part through `fill_part(spec, part, dtype, to)`.
template <class FillPart>
Result<Weights> Weights::fill(std::span<const WeightSpec> specs, Device& device, bool show_progress,
                              const FillPart& fill_part) {
  if (device.properties().kind != DeviceKind::kCpu)
    return unimplemented("loading weights to a device other than the CPU");
  std::size_t total = 0;
  for (const WeightSpec& spec : specs) total += align_up(TRY(bytes_of(spec)));

  Weights weights;
  weights.memory_ = TRY(device.allocate(total, "weights"));
  Progress progress("Loading weights", static_cast<std::int64_t>(total), "B", show_progress);
  std::byte* next = weights.memory_->data();
  for (const WeightSpec& spec : specs) {
    const std::size_t bytes = TRY(bytes_of(spec));
    weights.addresses_.emplace(spec.name, next);
    if (spec.parts.empty()) {
      std::memcpy(next, spec.constant.data(), std::min(bytes, spec.constant.size() * sizeof(float)));
    } else {
      const StoredDtype dtype = TRY(stored_dtype_of(spec.type.dtype));
      std::byte* to = next;
      for (const WeightPart& part : spec.parts) {
        const auto part_bytes = static_cast<std::size_t>(TRY(slice_runs(part.shape, part.slice)).num_elements() *
                                                         stored_dtype_bytes(dtype));
        if (to + part_bytes > next + bytes)
          return internal_error(
              fmt::format("the parts of {} do not fit its type {}", spec.name, spec.type.to_string()));
        TRY(fill_part(spec, part, dtype, std::span(to, part_bytes)));
        to += part_bytes;
      }
    }
    next += align_up(bytes);
    progress.advance(static_cast<std::int64_t>(align_up(bytes)));
  }
  return weights;
}

Result<Weights> Weights::load(std::span<const WeightSpec> specs, const Checkpoint& checkpoint, Device& device,
                              bool show_progress) {
  return fill(specs, device, show_progress,
              [&](const WeightSpec&, const WeightPart& part, StoredDtype dtype, std::span<std::byte> to) -> Status {
                const StoredTensor tensor = TRY(checkpoint.get(part.tensor, part.shape));
                return copy_tensor(tensor, part.slice, dtype, to);
              });
}

Result<Weights> Weights::make_dummy(std::span<const WeightSpec> specs, std::uint64_t seed, Device& device,
                                    bool show_progress) {
  return fill(specs, device, show_progress,
              [&](const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, std::span<std::byte> to) {
                return fill_dummy(spec, part, dtype, seed, to);
              });
}

}  // namespace tessera
