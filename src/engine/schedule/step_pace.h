// Estimates when the running forward will end. The next forward is scheduled then and not sooner, so that requests that
// arrive meanwhile join it. If it were scheduled as soon as the last results are there, these requests would wait for
// one more whole forward.
//
// A forward's time is estimated by a line over its rows, fitted to the last few dozen forwards of its kind. Twice the
// mean distance of these forwards from the line is subtracted. A short estimate only loses the chance for requests to
// join. A long estimate would leave the device idle. So if the host finds a forward already finished, the estimates for
// its kind are cut for the next few forwards. While a decode-only forward runs, the next forward is delayed only if
// requests are arriving, because decode-only forwards are short and the host must be awake for each of them. The class
// reads no clock. The caller passes the times.
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

  // A forward: `rows` counts requests if all of them decode, and tokens otherwise.
  struct Step {
    bool decodes = false;
    std::int64_t rows = 0;
  };

  // Records that a request arrived.
  void arrived(Clock::time_point now) { last_arrival_ = now; }
  // Records that a forward was enqueued after those in flight, which are at most kMost. The host scheduled and enqueued
  // it from `begin` to `end`.
  void submitted(Step step, Clock::time_point begin, Clock::time_point end);
  // Records that the host waited from `begin` to `end` for the oldest forward's results.
  void collected(Clock::time_point begin, Clock::time_point end);
  // Returns the time until which the host may wait before it schedules the next forward. The time is in the past if
  // nothing is in flight or too little is known.
  Clock::time_point due() const;

 private:
  using Duration = Clock::duration;
  struct InFlight {
    Step step{};
    Clock::time_point submitted{};
  };
  // A line that estimates a forward's milliseconds from its rows. It is fitted by least squares, in which older
  // forwards have less weight.
  class Line {
   public:
    void add(double rows, double ms);
    // Returns the estimate in milliseconds, minus twice the mean distance of the forwards from the line. Returns 0
    // while the line has too few forwards.
    double at(double rows) const;
    void found_too_long() { share_ = 0.5; }

   private:
    double fitted(double rows) const;

    double weight_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;  // weighted sums over forwards; x: rows, y: ms
    double distance_ = 0;                                  // mean distance of the points from the line
    double share_ = 1;                                     // factor by which the estimate is multiplied
    int count_ = 0;
  };

  std::array<Line, 2> lines_{};              // index 1: forwards that only decode; index 0: all others
  std::array<InFlight, kMost> in_flight_{};  // oldest first
  std::size_t count_ = 0;                    // number of forwards in flight
  Clock::time_point last_end_{};             // end of the last forward that was collected
  Clock::time_point last_arrival_{};
  double host_ms_ = 0;  // time to schedule and enqueue a forward, a mean of the last few forwards
};

}  // namespace tessera
