// Which sizes are captured when (CaptureMode).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// The core of a ladder: its smallest and its largest size, and between them for each power of two the smallest size
// that is no less. Padding stays below the real count, with a fifth of a default ladder's captures.
std::vector<std::int64_t> core_sizes(std::span<const std::int64_t> ladder);

// The prefill sizes whose eager run is measured beside their replay: the smallest, the largest and every fourth.
// Between them costs of eager forwards are interpolated.
std::vector<std::int64_t> eager_samples(std::span<const std::int64_t> ladder);

}  // namespace tessera
