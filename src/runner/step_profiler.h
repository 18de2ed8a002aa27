// Where the time of forwards goes: the host's by kind of work, the device's by part of the forward. There only while an
// engine is profiled; then each part costs an event on the device, about a microsecond of either side.
//
// Threads: the one that owns the runner.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/runner/dispatch/dispatch.h"

namespace tessera {

// In the order of a step. Those before kWait belong to the forward that is submitted next, kWait to the one that is
// collected next, and those after it to the one that was collected last.
enum class HostWork : std::uint8_t {
  kIdle,      // nothing to do
  kIdleWork,  // sizes are captured and forwards measured while no request is there
  kRequests,  // requests are taken, checked and cancelled
  kSchedule,  // which tokens, in which pages
  kPlan,      // operators' plans
  kInputs,    // ids, positions, slots, page tables, rows; their copy to the device
  kLaunch,    // graphs and kernels enqueued
  kWait,      // for the device
  kCollect,   // tokens to their requests; stops
  kText,      // tokens to text
  kDeliver,   // events to those who asked
};
inline constexpr int kNumHostWorks = 11;
std::string_view host_work_name(HostWork work);  // "idle" "idle work" "requests" …

// Work of one kind without other recorded work in between. Times are milliseconds since the profile began.
struct HostSpan {
  HostWork work = HostWork::kIdle;
  std::int64_t forward = 0;  // index of the forward that it belongs to
  double begin_ms = 0;
  double end_ms = 0;
  double own_ms = 0;  // of it, without what was done inside
};

struct DevicePart {
  std::string name;  // "prefill pieces", "attention", "head", "decode"
  double ms = 0;     // all of that name in the forward
};

struct ProfiledForward {
  Decision decision{};
  double begin_ms = 0;  // on the device, as host time: exact to the time that the host takes to see an event pass
  double end_ms = 0;
  std::vector<DevicePart> parts{};  // in the order of their first
};

class StepProfiler {
 public:
  // Device and stream outlive it. Waits for the stream.
  static Result<std::unique_ptr<StepProfiler>> start(Device& device, Stream& stream);

  // Measures host work until it is destroyed. Scopes nest; time counts for the innermost. Null: nothing is measured.
  class Scope {
   public:
    Scope(StepProfiler* profiler, HostWork work) : profiler_(profiler) {
      if (profiler != nullptr) profiler->open(work);
    }
    ~Scope() {
      if (profiler_ != nullptr) profiler_->close();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StepProfiler* profiler_;
  };

  // Of one forward, in this order; a forward that fails before submitted() is forgotten when the next begins.
  void begin_forward();
  // What the device does from here on is the forward's. Again: nothing happens.
  Status begin_device();
  // What was enqueued since the mark before, or since begin_device(), is `part`.
  Status mark(std::string part);
  void submitted(const Decision& decision);
  // The oldest submitted forward has passed on the device.
  Status collected();

  // Of forwards that were collected.
  const std::vector<ProfiledForward>& forwards() const { return forwards_; }
  const std::vector<HostSpan>& host() const { return host_; }
  std::chrono::steady_clock::time_point origin() const { return origin_; }
  double now_ms() const;

 private:
  // Two forwards are in flight, and where each begins is measured from the one before it.
  static constexpr std::size_t kKept = 3;
  struct Marks {
    std::vector<std::unique_ptr<Event>> events{};  // [0]: the beginning
    std::vector<std::string> names{};              // [i]: what ends with events[i + 1]
    std::size_t used = 0;                          // events
    Decision decision{};
  };
  struct Open {
    HostWork work;
    double begin_ms;
    double inner_ms;        // of scopes inside
    std::size_t first_own;  // spans recorded when it was opened
  };

  StepProfiler(Device& device, Stream& stream) : device_(device), stream_(stream) {}
  void open(HostWork work);
  void close();
  Status record(Marks& marks);
  Marks& marks_of(std::int64_t forward) { return marks_[static_cast<std::size_t>(forward) % kKept]; }

  Device& device_;
  Stream& stream_;
  std::chrono::steady_clock::time_point origin_{};
  std::unique_ptr<Event> first_{};    // passed at origin_
  std::array<Marks, kKept> marks_{};  // of forward i: [i % kKept]
  std::int64_t num_submitted_ = 0;
  std::vector<ProfiledForward> forwards_{};
  std::vector<Open> open_{};  // innermost last
  std::vector<HostSpan> host_{};
};

}  // namespace tessera
