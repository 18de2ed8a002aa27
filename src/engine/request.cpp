#include "tessera/engine/request.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera {

Status check_sampling(const SamplingParams& params) {
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    return invalid_argument(fmt::format("temperature is {}; accepted is 0 (greedy) or more", params.temperature));
  }
  if (params.top_k < 0) return invalid_argument(fmt::format("top_k is {}; accepted is 0 (all) or more", params.top_k));
  const bool top_p_accepted = params.top_p > 0 && params.top_p <= 1;  // false for NaN
  if (!top_p_accepted) {
    return invalid_argument(fmt::format("top_p is {}; accepted is more than 0 and at most 1", params.top_p));
  }
  return ok_status();
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kError: return "error";
  }
  return "";
}

}  // namespace tessera
