// Where the content of weights comes from: a checkpoint, or a random generator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Writes the elements `runs` of the part, converted to `dtype` (F32, F16 or BF16; U8 of
// PackedStorage, as it is), to `to`, which is exactly as long.
// Called from one thread.
using WeightSource = std::function<Status(const WeightSpec& spec, const WeightPart& part, StoredDtype dtype,
                                          const SliceRuns& runs, std::span<std::byte> to)>;

// A missing, misshapen or mistyped tensor is an error that names it.
WeightSource checkpoint_source(Checkpoint checkpoint);

// Random content from `seed` alone (load format "dummy").
WeightSource dummy_source(std::uint64_t seed);

}  // namespace tessera
