// When the forward that runs is about to end: the next one is scheduled then, and no sooner, so that requests that
// arrive meanwhile are in it. Scheduled as soon as the last one's results are there, it would run without them, and
// they would wait for a whole forward more.
//
// A forward's time is estimated as a line over its rows, fitted to the last few dozen forwards of its kind, less twice
// their mean distance to it. An estimate that is too short costs nothing but the chance; one that is too long would
// leave the device idle: where a forward is found finished, its kind's estimates are cut for the next few. Forwards of
// decodes alone are short, and the host must be awake for each of them: what waits for their end is scheduled late only
// while requests arrive. Pure: times are given.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tessera {

class StepPace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMost = 4;

  // Of a forward: `rows` are requests where all decode, else tokens.
  struct Step {
    bool decodes = false;
    std::int64_t rows = 0;
  };

  // A request arrived.
  void arrived(Clock::time_point now) { last_arrival_ = now; }
  // A forward was enqueued behind those in flight, of which there are kMost at most; the host began to schedule it at
  // `begin`.
  void submitted(Step step, Clock::time_point begin, Clock::time_point end);
  // The oldest one's results were waited for from `begin` to `end`.
  void collected(Clock::time_point begin, Clock::time_point end);
  // No sooner the next forward need be scheduled. In the past where nothing is in flight or too little is known.
  Clock::time_point due() const;

 private:
  using Duration = Clock::duration;
  struct InFlight {
    Step step{};
    Clock::time_point submitted{};
  };
  // Milliseconds over rows, by least squares whose weights fall with age.
  class Line {
   public:
    void add(double rows, double ms);
    // Less twice the mean distance; 0 while there are too few.
    double at(double rows) const;
    void found_too_long() { share_ = 0.5; }

   private:
    double fitted(double rows) const;

    double weight_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;  // sums
    double distance_ = 0;                                  // mean
    double share_ = 1;                                     // of the estimate that is relied on
    int count_ = 0;
  };

  std::array<Line, 2> lines_{};              // [decodes]
  std::array<InFlight, kMost> in_flight_{};  // oldest first
  std::size_t count_ = 0;                    // of them
  Clock::time_point last_end_{};             // of the last forward that was collected
  Clock::time_point last_arrival_{};
  double host_ms_ = 0;  // what scheduling and enqueuing a forward takes, mean of the last few
};

}  // namespace tessera
