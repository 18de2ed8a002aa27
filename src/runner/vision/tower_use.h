// Counts a vision tower's forwards by size and reason, for counters and for a request's answer.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/runner/vision/vision_choice.h"

namespace tessera {

// One forward of packed images.
struct TowerForward {
  std::size_t images = 0;
  std::int64_t patches = 0;  // patches of the images; how.size includes padding
  VisionChoice how{};
};

struct TowerKey {
  std::int64_t size = 0;  // the graph's budget; all eager forwards count under 0
  VisionReason reason = VisionReason::kNotCaptured;
  static TowerKey of(const VisionChoice& how) { return {how.graph ? how.size : 0, how.reason}; }
  friend auto operator<=>(const TowerKey&, const TowerKey&) = default;
};

struct TowerCount {
  std::int64_t forwards = 0;
  std::int64_t images = 0;
  std::int64_t patches = 0;
  std::int64_t padding = 0;  // patches of padding
  void add(const TowerCount& more);
};

// Counts, ascending by key. The list is flat, so assigning it to a snapshot with as many keys allocates nothing.
class TowerCounts {
 public:
  void add(const TowerForward& forward) { add_of(forward, forward.images, forward.patches); }
  // Counts a forward as if it had only `images` images and `patches` patches, for a request that owns these.
  void add_of(const TowerForward& forward, std::size_t images, std::int64_t patches);
  void add(const TowerCounts& more);

  const std::vector<std::pair<TowerKey, TowerCount>>& by_key() const { return by_key_; }
  // Return sums over all keys with this reason, or with this size.
  TowerCount of(VisionReason reason) const;
  TowerCount of_size(std::int64_t size) const;  // replayed forwards only

 private:
  TowerCount& entry(const TowerKey& key);

  std::vector<std::pair<TowerKey, TowerCount>> by_key_;
};

}  // namespace tessera
