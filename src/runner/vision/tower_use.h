// How a vision tower's forwards ran: those that ran alike share an entry. For counters, and for a request's answer.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/runner/vision/vision_choice.h"

namespace tessera {

// One forward, of packed images.
struct TowerForward {
  std::size_t images = 0;
  std::int64_t patches = 0;  // of the images; choice.size has the padding too
  VisionChoice how{};
};

struct TowerKey {
  std::int64_t size = 0;  // the graph's budget; eager forwards are counted together, as 0
  VisionReason reason = VisionReason::kNotCaptured;
  static TowerKey of(const VisionChoice& how) { return {how.graph ? how.size : 0, how.reason}; }
  friend auto operator<=>(const TowerKey&, const TowerKey&) = default;
};

struct TowerCount {
  std::int64_t forwards = 0;
  std::int64_t images = 0;
  std::int64_t patches = 0;
  std::int64_t padding = 0;  // patches computed for nothing
  void add(const TowerCount& more);
};

// Ascending by key. A flat list: assigning it to a snapshot that has as many keys allocates nothing.
class TowerCounts {
 public:
  void add(const TowerForward& forward) { add_of(forward, forward.images, forward.patches); }
  // A forward in which so many of the images and patches are those that are counted.
  void add_of(const TowerForward& forward, std::size_t images, std::int64_t patches);
  void add(const TowerCounts& more);

  const std::vector<std::pair<TowerKey, TowerCount>>& by_key() const { return by_key_; }
  // Sums.
  TowerCount of(VisionReason reason) const;
  TowerCount of_size(std::int64_t size) const;  // replayed

 private:
  TowerCount& entry(const TowerKey& key);

  std::vector<std::pair<TowerKey, TowerCount>> by_key_;
};

}  // namespace tessera
