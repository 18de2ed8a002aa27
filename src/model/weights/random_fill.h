// Makes reproducible random weights without a checkpoint (load format "dummy"). Element i of a tensor depends only on
// (seed, i). Elements are uniform in [-scale, scale), in steps of scale / 2^15. They are the same for every rank and
// every number of threads and, up to rounding, for every type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/weights/tensor_copy.h"

namespace tessera {

// Returns the seed of one tensor. Tensors with different names have different seeds.
std::uint64_t tensor_seed(std::uint64_t seed, std::string_view tensor_name);

// Fills dst with one slice of a tensor of random values. An element has the same value as in the whole tensor. Returns
// invalid_argument if dtype is not F32, F16 or BF16, or if dst does not have the size of the slice.
Status fill_random_runs(std::span<std::byte> dst, StoredDtype dtype, const SliceRuns& runs, std::uint64_t seed,
                        float scale);
Status fill_random(std::span<std::byte> dst, StoredDtype dtype, std::span<const std::int64_t> shape,
                   const TensorSlice& slice, std::uint64_t seed, float scale);

// Fills `dst` with the bytes of a random tensor of bytes, beginning with the byte at index `first`. All values are
// equally probable. Runs on the calling thread.
void fill_random_bytes(std::span<std::byte> dst, std::int64_t first, std::uint64_t seed);

}  // namespace tessera
