// Reproducible weights without a checkpoint (load format "dummy"). Element i of a tensor is a function of (seed, i)
// alone, uniform in [-scale, scale) in steps of scale / 2^15. It is the same for every rank, thread count and, up to
// rounding, type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/weights/tensor_copy.h"

namespace tessera {

// Returns a separate seed for each tensor of a model.
std::uint64_t tensor_seed(std::uint64_t seed, std::string_view tensor_name);

// Writes what copy_tensor() of that slice would write if the whole tensor had been filled. invalid_argument unless
// dtype is F32, F16 or BF16 and dst is as long as the slice.
Status fill_random_runs(std::span<std::byte> dst, StoredDtype dtype, const SliceRuns& runs, std::uint64_t seed,
                        float scale);
Status fill_random(std::span<std::byte> dst, StoredDtype dtype, std::span<const std::int64_t> shape,
                   const TensorSlice& slice, std::uint64_t seed, float scale);

// Fills bytes first, first + 1 … of a tensor of bytes; each value is equally probable. Runs on the calling thread.
void fill_random_bytes(std::span<std::byte> dst, std::int64_t first, std::uint64_t seed);

}  // namespace tessera
