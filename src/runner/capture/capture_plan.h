// Chooses the sizes that are captured at the start, and the sizes that are measured eagerly (CaptureMode).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// Returns the core of a ladder: the smallest size, the largest size, and for each power of two between these two, the
// smallest size that is at least this power. A default ladder contains these powers themselves, so a forward that is
// padded to the next core size has fewer padding rows than real rows. The core has about a fifth of a default ladder's
// sizes.
std::vector<std::int64_t> core_sizes(std::span<const std::int64_t> ladder);

// Returns the prefill sizes for which an eager run is measured in addition to the replay: the smallest size, every
// fourth size after it, and the largest. The eager run has one token less than the size. Costs of eager forwards
// between the measured ones are interpolated.
std::vector<std::int64_t> eager_samples(std::span<const std::int64_t> ladder);

}  // namespace tessera
