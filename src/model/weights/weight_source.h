// The source of weights' content: a checkpoint, or a random generator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Writes the elements `runs` of the part to `to`, which has exactly their length. They are converted to `dtype` (F32,
// F16 or BF16; U8 and I32 are written as the storage says). Called from one thread.
using WeightSource = std::function<Status(const WeightSpec& spec, const WeightPart& part, StoredDtype dtype,
                                          const SliceRuns& runs, std::span<std::byte> to)>;

// Reads from a checkpoint. A missing tensor, or one of the wrong shape or type, is an error that names it.
WeightSource checkpoint_source(std::shared_ptr<const Checkpoint> checkpoint);
WeightSource checkpoint_source(Checkpoint checkpoint);

// Makes random content from `seed` alone (load format "dummy").
WeightSource dummy_source(std::uint64_t seed);

}  // namespace tessera
