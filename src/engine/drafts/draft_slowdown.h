// Learns how much longer decode steps take than predicted: one factor for steps with drafts, and one for steps without
// drafts. Predictions come from forwards that were measured alone, with short contexts and with prompts of one request.
// The predictions leave out the costs that grow with the number of requests and drafts: rows of the head, recurrent
// states, and the host's work for each token.
//
// Only the engine's thread uses this class.
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

  // Ends the previous step at `now`, records how long it took, and begins `step`. Call it without a `step` if the
  // engine does something else: a step with prompts, handling a failure, or nothing. In that case, neither the time
  // before `now` nor the time after it is recorded.
  void begin(std::optional<Step> step, Clock::time_point now);
  // Returns the ratio of measured to predicted times of steps with drafts, divided by the same ratio of steps without
  // drafts. Returns 1 if nothing was recorded. While no step has drafts, the result moves slowly towards 1, so that
  // drafts are tried again.
  double factor(std::int64_t requests) const;

 private:
  // The factors for one range of loads: 1 request, 2 to 3, 4 to 7, and so on.
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
