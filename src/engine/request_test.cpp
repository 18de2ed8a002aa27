// Catches: invalid sampling parameters that reach the sampler, and valid ones that are refused.
#include "tessera/engine/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

SamplingParams params(double temperature, std::int64_t top_k = 0, double top_p = 1) {
  return {.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = std::nullopt};
}

TEST(CheckSampling, AcceptsValidParameters) {
  const SamplingParams good[] = {params(0),        params(0.7, 50, 0.9), params(100), params(1e-9, 1, 1e-9),
                                 params(0, kMost), params(1, 0, 1)};
  for (const SamplingParams& p : good) EXPECT_TRUE(check_sampling(p).ok()) << p.temperature;
}

TEST(CheckSampling, ErrorsNameFieldValueAndAcceptedRange) {
  const struct {
    SamplingParams params;
    const char* message;
  } cases[] = {
      {params(-0.1), "temperature is -0.1; accepted is 0 (greedy) or more"},
      {params(kInf), "temperature is inf; accepted is 0 (greedy) or more"},
      {params(std::nan("")), "temperature is nan; accepted is 0 (greedy) or more"},
      {params(1, -1), "top_k is -1; accepted is 0 (all) or more"},
      {params(1, 0, 0), "top_p is 0; accepted is more than 0 and at most 1"},
      {params(1, 0, 1.5), "top_p is 1.5; accepted is more than 0 and at most 1"},
      {params(1, 0, -1), "top_p is -1; accepted is more than 0 and at most 1"},
      {params(1, 0, std::nan("")), "top_p is nan; accepted is more than 0 and at most 1"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(check_sampling(c.params).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(check_sampling(c.params).message(), c.message);
  }
}

TEST(FinishReasons, HaveTheApisNames) {
  EXPECT_EQ(finish_reason_name(FinishReason::kNone), "");
  EXPECT_EQ(finish_reason_name(FinishReason::kStop), "stop");
  EXPECT_EQ(finish_reason_name(FinishReason::kLength), "length");
  EXPECT_EQ(finish_reason_name(FinishReason::kCancelled), "cancelled");
  EXPECT_EQ(finish_reason_name(FinishReason::kError), "error");
}

}  // namespace
}  // namespace tessera
