// Shows where a server under load spends its time. Makes tables and JSON with sums for each phase (prefill, mixed,
// decode), and a timeline.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/cli/bench/chrome_trace.h"
#include "tessera/engine/report/engine_profile.h"

namespace tessera::cli {

// A time span on the profile's clock, in milliseconds.
struct TimeSpan {
  double begin_ms = 0;
  double end_ms = 0;
};

// Sums over the forwards of one phase.
struct PhaseTimes {
  ForwardPhase phase = ForwardPhase::kPrefill;
  std::int64_t forwards = 0;
  std::int64_t requests = 0;
  std::int64_t decoding = 0;
  std::int64_t tokens = 0;
  std::int64_t padding = 0;
  double device_ms = 0;
  // The time before these forwards in which the device waited for the host. Waits for new requests do not count.
  double waited_ms = 0;
  std::vector<DevicePart> parts{};
  std::array<double, kNumHostWorks> host_ms{};  // [HostWork]: time of each kind of work, without idle time
};

struct ServeTimes {
  double total_ms = 0;
  double device_ms = 0;
  std::vector<PhaseTimes> phases{};             // the phases that occurred: prefill, mixed, decode
  std::array<double, kNumHostWorks> host_ms{};  // [HostWork]: time of each kind of work
  // Returns the time of the engine thread that no HostWork covers, in milliseconds.
  double other_ms() const;
};

// Returns the sums over the forwards that began on the device within `during`, and over the host's work within
// `during`.
ServeTimes sum_up(const EngineProfile& profile, const TimeSpan& during);
std::string serve_times_text(const ServeTimes& times);
Json to_json(const ServeTimes& times);

// Adds a track of forwards and a track of the engine's thread.
void add_serve_timeline(const EngineProfile& profile, const TimeSpan& during, const std::string& name,
                        std::int64_t process, ChromeTrace& trace);

}  // namespace tessera::cli
