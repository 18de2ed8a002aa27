// What a program did when, while it started: named phases on one clock, which may overlap.
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

// Used by one thread at a time.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;

  // In seconds from the origin.
  struct Phase {
    std::string name;
    double begin_s = 0;
    double end_s = 0;
    double seconds() const { return end_s - begin_s; }
  };

  // Records the time of its life. The timeline outlives it, or is null and nothing is recorded.
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

  // A phase that was recorded by that name before is replaced.
  void record(std::string_view name, Clock::time_point begin, Clock::time_point end);
  Scope scope(std::string_view name) { return {this, name}; }

  double seconds_at(Clock::time_point time) const { return std::chrono::duration<double>(time - origin_).count(); }
  // By their beginnings.
  std::span<const Phase> phases() const { return phases_; }
  // The seconds of the phase of that name; 0 where there is none.
  double seconds_of(std::string_view name) const;
  // From the origin to the last end.
  double end_s() const;
  // The part of that which is in no phase.
  double uncovered_s() const;
  // "312.4 ms (process 0.0-9.1, plan 12.2-30.5 …; 1.3 in none of these)", in milliseconds.
  std::string line() const;

 private:
  Clock::time_point origin_;
  std::vector<Phase> phases_;
};

}  // namespace tessera
