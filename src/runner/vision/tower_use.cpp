#include "tessera/runner/vision/tower_use.h"

#include <algorithm>

namespace tessera {

void TowerCount::add(const TowerCount& more) {
  forwards += more.forwards;
  images += more.images;
  patches += more.patches;
  padding += more.padding;
}

TowerCount& TowerCounts::entry(const TowerKey& key) {
  auto it = std::ranges::lower_bound(by_key_, key, {}, &std::pair<TowerKey, TowerCount>::first);
  if (it == by_key_.end() || it->first != key) it = by_key_.insert(it, {key, {}});
  return it->second;
}

void TowerCounts::add_of(const TowerForward& forward, std::size_t images, std::int64_t patches) {
  entry(TowerKey::of(forward.how))
      .add({.forwards = 1,
            .images = static_cast<std::int64_t>(images),
            .patches = patches,
            .padding = forward.how.size - forward.patches});
}

void TowerCounts::add(const TowerCounts& more) {
  for (const auto& [key, count] : more.by_key_) entry(key).add(count);
}

TowerCount TowerCounts::of(VisionReason reason) const {
  TowerCount sum;
  for (const auto& [key, count] : by_key_)
    if (key.reason == reason) sum.add(count);
  return sum;
}

TowerCount TowerCounts::of_size(std::int64_t size) const {
  TowerCount sum;
  for (const auto& [key, count] : by_key_)
    if (key.size == size && is_replay(key.reason)) sum.add(count);
  return sum;
}

}  // namespace tessera
