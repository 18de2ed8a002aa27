// Measures the time of forwards. Host time is measured for each kind of work, and device time for each part of the
// forward. The profiler exists only while an engine is profiled. During this time one event is recorded for each part.
// Each event takes about a microsecond on the host and on the device.
//
// Threads: the thread that owns the runner.
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

// Kinds of host work in the order of a step. Kinds before kWait belong to the forward that is submitted next. kWait
// belongs to the forward that is collected next. Kinds after kWait belong to the forward that was collected last.
enum class HostWork : std::uint8_t {
  kIdle,      // no work
  kIdleWork,  // captures and cost measurements while there are no requests
  kRequests,  // taking, checking and cancelling requests
  kSchedule,  // choosing tokens and pages
  kPlan,      // making operators' plans
  kInputs,    // staging ids, positions, slots, page tables and rows, and copying them to the device
  kLaunch,    // enqueueing graphs and kernels
  kWait,      // waiting for the device
  kCollect,   // handing tokens to their requests, and checking stop conditions
  kText,      // converting tokens to text
  kDeliver,   // delivering events to the callers
};
inline constexpr int kNumHostWorks = 11;
std::string_view host_work_name(HostWork work);  // "idle" "idle work" "requests" …

// The time of one Scope, or of several consecutive scopes with the same kind of work and the same forward. A nested
// scope has its own span. begin_ms and end_ms count from the start of the profile.
struct HostSpan {
  HostWork work = HostWork::kIdle;
  std::int64_t forward = 0;  // index of the forward that the work belongs to
  double begin_ms = 0;
  double end_ms = 0;
  double own_ms = 0;  // time in these scopes without nested scopes
};

struct DevicePart {
  std::string name;  // "prefill pieces", "attention", "head", "decode"
  double ms = 0;     // total time of all parts of this name in the forward
};

struct ProfiledForward {
  Decision decision{};
  double begin_ms = 0;  // device time since the profile began, as exactly as the host can observe it
  double end_ms = 0;
  std::vector<DevicePart> parts{};  // one entry for each name, in the order in which the names first occur
};

class StepProfiler {
 public:
  // Starts a profile. Waits until the stream has finished its work. `device` and `stream` must outlive the profiler.
  static Result<std::unique_ptr<StepProfiler>> start(Device& device, Stream& stream);

  // Measures one kind of host work, from the construction of the scope to its destruction. Scopes nest, and time counts
  // for the innermost scope. If `profiler` is null, measures nothing.
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

  // For one forward, call begin_forward(), begin_device(), mark() after each part, and submitted(), in this order. A
  // forward that fails before submitted() is dropped when the next forward begins.
  void begin_forward();
  // Starts the forward's device time here. A second call does nothing.
  Status begin_device();
  // Gives the name `part` to the work enqueued since the last mark, or since begin_device().
  Status mark(std::string part);
  void submitted(const Decision& decision);
  // Records that the device has finished the oldest submitted forward.
  Status collected();

  // Return the forwards that were collected, and the spans of host work.
  const std::vector<ProfiledForward>& forwards() const { return forwards_; }
  const std::vector<HostSpan>& host() const { return host_; }
  std::chrono::steady_clock::time_point origin() const { return origin_; }
  double now_ms() const;

 private:
  // The beginning of a forward is measured from the beginning of the forward before it. Two forwards may be in flight,
  // and the older one needs the beginning of the forward before it, so the marks of three forwards are kept.
  static constexpr std::size_t kKept = 3;
  struct Marks {
    std::vector<std::unique_ptr<Event>> events{};  // [0]: recorded when the forward began
    std::vector<std::string> names{};              // [i]: the part that ends with events[i + 1]
    std::size_t used = 0;                          // number of events in use
    Decision decision{};
  };
  struct Open {
    HostWork work;
    double begin_ms;
    double inner_ms;        // time in nested scopes
    std::size_t first_own;  // number of spans that were recorded when the scope opened
  };

  StepProfiler(Device& device, Stream& stream) : device_(device), stream_(stream) {}
  void open(HostWork work);
  void close();
  Status record(Marks& marks);
  Marks& marks_of(std::int64_t forward) { return marks_[static_cast<std::size_t>(forward) % kKept]; }

  Device& device_;
  Stream& stream_;
  std::chrono::steady_clock::time_point origin_{};
  std::unique_ptr<Event> first_{};    // recorded when origin_ was read
  std::array<Marks, kKept> marks_{};  // forward i uses [i % kKept]
  std::int64_t num_submitted_ = 0;
  std::vector<ProfiledForward> forwards_{};
  std::vector<Open> open_{};  // open scopes; the innermost is last
  std::vector<HostSpan> host_{};
};

}  // namespace tessera
