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
  std::int64_t patches = 0;  // without padding, which how.size includes
  VisionChoice how{};
};

struct TowerKey {
  std::int64_t size = 0;  // the graph's budget; eager forwards have size 0
  VisionReason reason = VisionReason::kNotCaptured;
  static TowerKey of(const VisionChoice& how) { return {how.graph ? how.size : 0, how.reason}; }
  friend auto operator<=>(const TowerKey&, const TowerKey&) = default;
};

struct TowerCount {
  std::int64_t forwards = 0;
  std::int64_t images = 0;
  std::int64_t patches = 0;
  std::int64_t padding = 0;  // number of padding patches
  void add(const TowerCount& more);
};

// Holds counts in ascending order of their keys. The list is a flat vector, so copying it to a snapshot that already
// has as many keys allocates nothing.
class TowerCounts {
 public:
  void add(const TowerForward& forward) { add_of(forward, forward.images, forward.patches); }
  // Counts a forward for one request. Only `images` images and `patches` patches of the forward belong to this request.
  void add_of(const TowerForward& forward, std::size_t images, std::int64_t patches);
  void add(const TowerCounts& more);

  const std::vector<std::pair<TowerKey, TowerCount>>& by_key() const { return by_key_; }
  // Return the sum over all keys with this reason, and the sum over all keys with this size.
  TowerCount of(VisionReason reason) const;
  TowerCount of_size(std::int64_t size) const;  // only replayed forwards

 private:
  TowerCount& entry(const TowerKey& key);

  std::vector<std::pair<TowerKey, TowerCount>> by_key_;
};

}  // namespace tessera
