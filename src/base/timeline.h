// Records the phases of a program's start. Phases have names and may overlap. All phases use one clock.
//
//   Timeline start(process_start);
//   {
//     const Timeline::Scope scope = start.scope("plan");
//     …
//   }
//   log_info("engine", "{}", start.line());
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// One thread at a time may use a Timeline.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;

  // A phase. Times are in seconds from the timeline's origin (the argument of the timeline's constructor).
  struct Phase {
    std::string name;
    double begin_s = 0;
    double end_s = 0;
    double seconds() const { return end_s - begin_s; }
  };

  // Records the time from its construction to its destruction as a phase. The timeline must outlive the Scope. If the
  // timeline is null, the Scope records nothing.
  class Scope {
   public:
    Scope(Timeline* timeline, std::string_view name) : timeline_(timeline), name_(name), begin_(Clock::now()) {}
    ~Scope() {
      if (timeline_ != nullptr) timeline_->record(name_, begin_, Clock::now());
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Timeline* timeline_;
    std::string_view name_;
    Clock::time_point begin_;
  };

  explicit Timeline(Clock::time_point origin = Clock::now()) : origin_(origin) {}

  // Records a phase. It replaces an earlier phase of the same name.
  void record(std::string_view name, Clock::time_point begin, Clock::time_point end);
  Scope scope(std::string_view name) { return {this, name}; }

  double seconds_at(Clock::time_point time) const { return std::chrono::duration<double>(time - origin_).count(); }
  // Returns the phases ordered by when they began.
  std::span<const Phase> phases() const { return phases_; }
  // Returns the duration of the phase in seconds. Returns 0 if there is no phase of this name.
  double seconds_of(std::string_view name) const;
  // Returns the time in seconds from the origin to the end of the phase that ends last.
  double end_s() const;
  // Returns the part of end_s() that no phase covers, in seconds.
  double uncovered_s() const;
  // Returns a log line whose times are in milliseconds: "312.4 ms (process 0.0-9.1, plan 12.2-30.5 …; 1.3 in none of
  // these)".
  std::string line() const;

 private:
  Clock::time_point origin_;
  std::vector<Phase> phases_;
};

}  // namespace tessera
