#include "tessera/engine/schedule/step_pace.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

using Ms = std::chrono::duration<double, std::milli>;

// A wait of at most this time means that the forward had already finished.
constexpr Ms kAlreadyThere{0.1};
// Slack for threads that wake late, in milliseconds. The host begins to schedule the next step before the running
// forward's estimated end: earlier by twice its scheduling time plus this slack.
constexpr double kSlackMs = 0.7;
// While a forward with prompts runs, the next step is always delayed. While a decode-only forward runs, it is delayed
// only if the forward started at most this long after the last request arrived.
constexpr std::chrono::seconds kArrivals{1};
constexpr double kKept = 0.96;  // each added forward multiplies the old sums by this
constexpr int kFewest = 6;      // a line is used once it has this many forwards
// If a forward takes more than kFar times its estimated time, it counts as if it had taken kFar times that time, so
// that an outlier hardly moves the line. For this limit, an estimate below kLittle times the mean time of all forwards
// is raised to that value.
constexpr double kFar = 2;
constexpr double kLittle = 0.2;

}  // namespace

double StepPace::Line::fitted(double rows) const {
  const double spread = weight_ * xx_ - x_ * x_;
  // If all forwards had equally many rows, only the mean of their times is known. This mean is the estimate for as many
  // rows or more. For fewer rows the mean is scaled down in proportion.
  if (spread <= 1e-6 * weight_ * xx_) return rows * weight_ >= x_ ? y_ / weight_ : y_ / x_ * rows;
  const double slope = std::max(0.0, (weight_ * xy_ - x_ * y_) / spread);
  return (y_ - slope * x_) / weight_ + slope * rows;
}

void StepPace::Line::add(double rows, double ms) {
  if (count_ >= kFewest) ms = std::min(ms, kFar * std::max(fitted(rows), kLittle * y_ / weight_));
  if (count_ > 0) distance_ = kKept * distance_ + (1 - kKept) * std::abs(ms - fitted(rows));
  for (double* sum : {&weight_, &x_, &y_, &xx_, &xy_}) *sum *= kKept;
  weight_ += 1;
  x_ += rows;
  y_ += ms;
  xx_ += rows * rows;
  xy_ += rows * ms;
  share_ = std::min(1.0, share_ * 1.2);
  ++count_;
}

double StepPace::Line::at(double rows) const {
  return count_ < kFewest ? 0 : std::max(0.0, share_ * fitted(rows) - 2 * distance_);
}

void StepPace::submitted(Step step, Clock::time_point begin, Clock::time_point end) {
  in_flight_[count_++] = {.step = step, .submitted = end};
  host_ms_ = 0.8 * host_ms_ + 0.2 * Ms(end - begin).count();
}

void StepPace::collected(Clock::time_point begin, Clock::time_point end) {
  const InFlight done = in_flight_.front();
  std::rotate(in_flight_.begin(), in_flight_.begin() + 1, in_flight_.end());
  --count_;
  const Clock::time_point start = std::max(done.submitted, last_end_);
  last_end_ = end;
  Line& line = lines_[done.step.decodes ? 1 : 0];
  if (end - begin > kAlreadyThere) {
    line.add(static_cast<double>(done.step.rows), Ms(end - start).count());
  } else {
    line.found_too_long();
  }
}

StepPace::Clock::time_point StepPace::due() const {
  if (count_ == 0) return {};
  const InFlight& running = in_flight_.front();
  const Clock::time_point start = std::max(running.submitted, last_end_);
  if (running.step.decodes && start - last_arrival_ > kArrivals) return {};
  const double ms = lines_[running.step.decodes ? 1 : 0].at(static_cast<double>(running.step.rows));
  return start + std::chrono::duration_cast<Duration>(Ms(ms - 2 * host_ms_ - kSlackMs));
}

}  // namespace tessera
