// Warns, at most once a minute, if too many of a minute's forwards ran without a graph, or had to wait until their size
// was bound to kernels and addresses.
//
//   if (std::optional<std::string> warning = watch.add(decision, shape_compiles, Clock::now())) log_warn(…);
//
// A forward is not a fallback if it runs eagerly at the user's request, or because a padded replay would cost more. The
// class reads no clock; the caller passes the time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/vision/vision_choice.h"

namespace tessera {

class FallbackWatch {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kWindow{60};
  static constexpr std::int64_t kFewest = 20;   // minimum number of fallbacks in a window for a warning
  static constexpr double kLargestShare = 0.1;  // a larger share of fallbacks among the window's forwards is reported

  // Counts a forward. Returns the warning about the minute (kWindow) that ended before this forward, if there is one.
  // `shape_compiles` is the number of sizes bound to kernels so far. If it has grown since the last call, this forward
  // had to wait for a binding.
  std::optional<std::string> add(const Decision& decision, std::int64_t shape_compiles, Clock::time_point now);
  // Records sizes that were bound between forwards, which delayed no forward.
  void bound_meanwhile(std::int64_t shape_compiles) { shape_compiles_ = shape_compiles; }
  // Counts a forward of the vision tower in the current minute. The language model's forward, which follows, is counted
  // by add().
  void add_tower(VisionReason reason);

 private:
  std::optional<std::string> judge() const;

  struct Window {
    Clock::time_point began{};
    std::array<std::int64_t, kNumReasons> fallbacks{};
    std::array<std::int64_t, kNumVisionReasons> tower_fallbacks{};
    std::int64_t forwards = 0;
    std::int64_t tower_forwards = 0;
    std::int64_t misses = 0;
  };
  Window window_;
  std::int64_t shape_compiles_ = 0;  // number of bound sizes at the last forward
};

}  // namespace tessera
