// Provides the content of weights, from a checkpoint or from a random generator.
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

// Writes elements of the part to `to`, which has exactly their size. `runs` says which elements. The elements are
// converted to `dtype`, which is F32, F16 or BF16, or another type if the storage requires that. Called from one
// thread.
using WeightSource = std::function<Status(const WeightSpec& spec, const WeightPart& part, StoredDtype dtype,
                                          const SliceRuns& runs, std::span<std::byte> to)>;

// Returns a source that reads from a checkpoint. If a tensor is missing or has the wrong shape or type, the source
// returns an error that names the tensor.
WeightSource checkpoint_source(std::shared_ptr<const Checkpoint> checkpoint);
WeightSource checkpoint_source(Checkpoint checkpoint);

// Returns a source of random content (load format "dummy"). All sources with the same `seed` give a weight the same
// content.
WeightSource dummy_source(std::uint64_t seed);

}  // namespace tessera
