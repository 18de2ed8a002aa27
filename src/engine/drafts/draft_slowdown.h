// Learns how much longer steps with drafts take than their predicted costs say. The costs of forwards are measured
// alone, with prompts of one request, so they leave out what grows with requests and drafts together: rows of the head,
// recurrent states, and the host's work for each token.
//
// Threads: the engine's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tessera {

class DraftSlowdown {
 public:
  DraftSlowdown() { factors_.fill(1); }

  // Records that a step with drafts for `requests` requests took `ms`, and that `predicted_ms` was predicted.
  // Precondition: predicted_ms > 0.
  void add(std::int64_t requests, double predicted_ms, double ms);
  // Records a step of `requests` requests without drafts. It moves the factor towards 1, so that drafts are tried again
  // in the end.
  void rest(std::int64_t requests);
  // Returns the factor by which predicted times are multiplied; 1 if nothing was recorded.
  double factor(std::int64_t requests) const { return factors_[place(requests)]; }

 private:
  // Numbers of requests with the same power of two share a factor.
  static std::size_t place(std::int64_t requests);

  std::array<double, 16> factors_{};
};

}  // namespace tessera
