#include "tessera/runner/capture/capture_plan.h"

#include <algorithm>

namespace tessera {

std::vector<std::int64_t> core_sizes(std::span<const std::int64_t> ladder) {
  std::vector<std::int64_t> core;
  std::int64_t power = 1;
  for (const std::int64_t size : ladder) {
    const bool is_end = size == ladder.front() || size == ladder.back();
    if (size >= power || is_end) core.push_back(size);
    while (power <= size) power *= 2;
  }
  return core;
}

std::vector<std::int64_t> eager_samples(std::span<const std::int64_t> ladder) {
  constexpr std::size_t kEvery = 4;
  std::vector<std::int64_t> samples;
  for (std::size_t i = 0; i < ladder.size(); ++i)
    if (i % kEvery == 0 || i + 1 == ladder.size()) samples.push_back(ladder[i]);
  return samples;
}

}  // namespace tessera
