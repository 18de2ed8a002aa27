// Learns how much longer steps of decodes take than their predicted costs say, with drafts and without. The costs of
// forwards are measured alone, with short contexts and with prompts of one request, so they leave out what grows with
// requests and drafts together: rows of the head, recurrent states, and the host's work for each token.
//
// Threads: the engine's.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tessera {

class DraftSlowdown {
 public:
  using Clock = std::chrono::steady_clock;

  // A step in which all requests decode.
  struct Step {
    std::int64_t requests;
    double predicted_ms;  // 0: no costs are known, so the step's time is not recorded
    bool has_drafts;
  };

  // Begins a step at `now`, and records the time since the step before it began. Nothing means that the engine does
  // something else: a step with prompts, a failure, or no step. Then neither time is recorded.
  void begin(std::optional<Step> step, Clock::time_point now);
  // Returns the factor by which steps with drafts take longer than predicted, divided by that of steps without drafts;
  // 1 if nothing was recorded. In the end it moves towards 1 while no step has drafts, so that drafts are tried again.
  double factor(std::int64_t requests) const;

 private:
  // The factors of loads with the same power of two of requests.
  struct Factors {
    double drafted = 1;
    double plain = 1;
  };
  static std::size_t place(std::int64_t requests);

  std::array<Factors, 16> factors_;
  std::optional<Step> last_;
  Clock::time_point begin_{};
};

}  // namespace tessera
