// Compares the plugin's tokens and log-probabilities with those of the engine's CPU kernels. The ids must be equal,
// because both choose a token from the same logits without rounding.
#include <cmath>
#include <random>

#include "plugin_under_test.h"
#include "tessera/ops/sampling/logit_edits.h"
#include "tessera/ops/sampling/sample.h"
#include "tessera/ops/sampling/softmax.h"
#include "tessera/ops/sampling/top_logprobs.h"

namespace opencl_test {
namespace {

using ir::DType;
using tessera::testing::expect_close;
using tessera::testing::int_tensor;
using tessera::testing::random_tensor;
using tessera::testing::run_op;

class OpenClTokens : public ::testing::Test {
 protected:
  void SetUp() override { OPENCL_REQUIRE_PLUGIN(); }

  std::vector<HostTensor> run(const ir::OpDecl& decl, const std::vector<HostTensor>& operands) {
    tessera_plugin_limits limits = {};
    limits.size = sizeof limits;
    DeviceOp op(decl, operands, {}, limits);
    op.load(operands);
    op.enqueue();
    const std::vector<HostTensor> eager = op.results();
    mutated_ = op.operands();
    op.record();
    op.load(operands);
    op.replay();
    const std::vector<HostTensor> replayed = op.results();
    for (std::size_t i = 0; i < eager.size(); ++i) EXPECT_EQ(eager[i].bytes, replayed[i].bytes) << decl.name;
    return eager;
  }
  std::vector<HostTensor> mutated_;
};

// Returns rows of every kind: plain values, ties, NaN, infinities, only NaN.
HostTensor strange_logits(std::int64_t rows, std::int64_t n) {
  HostTensor logits = random_tensor(DType::kFloat32, {rows, n}, 3, -6, 6);
  for (std::int64_t i = 0; i < n; i += 3) logits.set(n + i, 1.5);
  for (std::int64_t i = 0; i < n; i += 2) logits.set(2 * n + i, std::nan(""));
  logits.set(3 * n + 5, HUGE_VAL);
  for (std::int64_t i = 0; i < n; ++i) logits.set(4 * n + i, -HUGE_VAL);
  for (std::int64_t i = 0; i < n; ++i) logits.set(5 * n + i, std::nan(""));
  return logits;
}

TEST_F(OpenClTokens, Argmax) {
  for (const std::int64_t n : {7, 64, 1000}) {
    const HostTensor logits = strange_logits(9, n);
    EXPECT_EQ(run(tessera::kArgmax, {logits})[0].bytes,
              run_op(tessera::kArgmax, tessera::kArgmaxCpu, {logits}).results[0].bytes)
        << n;
  }
}

// The ids equal those of the CPU's kernel. A few draws fall on the border between two tokens, where the last bit of a
// weight decides, so at most two ids may differ.
TEST_F(OpenClTokens, DrawsAreTheCpus) {
  constexpr std::int64_t kRows = 150;
  std::mt19937 generator(5);
  const auto number = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator);
  };
  std::int64_t different = 0;
  std::int64_t draws = 0;
  for (const std::int64_t n : {9, 300, 3000}) {
    HostTensor logits = n > 8 ? strange_logits(kRows, n) : random_tensor(DType::kFloat32, {kRows, n}, 1);
    for (std::int64_t i = 6 * n; i < kRows * n; ++i) logits.set(i, number(-4, 4));
    HostTensor temperature = random_tensor(DType::kFloat32, {kRows}, 6, 0.2, 2);
    HostTensor top_k = tessera::testing::filled_tensor(DType::kInt32, {kRows}, 0);
    HostTensor top_p = tessera::testing::filled_tensor(DType::kFloat32, {kRows}, 1);
    HostTensor min_p = tessera::testing::filled_tensor(DType::kFloat32, {kRows}, 0);
    HostTensor seed = tessera::testing::filled_tensor(DType::kInt64, {kRows}, 0);
    HostTensor choice = tessera::testing::filled_tensor(DType::kInt32, {kRows}, 0);
    HostTensor position = tessera::testing::filled_tensor(DType::kInt32, {kRows}, 0);
    for (std::int64_t r = 0; r < kRows; ++r) {
      if (r % 11 == 0) temperature.set(r, 0);
      if (r % 2 == 0) top_k.set(r, std::floor(number(1, 60)));
      if (r % 3 == 0) top_p.set(r, number(0, 1));
      if (r % 5 == 0) min_p.set(r, number(0, 0.3));
      seed.set(r, std::floor(number(0, 1e15)));
      choice.set(r, static_cast<double>(r % 4));
      position.set(r, static_cast<double>(r));
    }
    const std::vector<HostTensor> operands{logits, temperature, top_k, top_p, min_p, seed, choice, position};
    const HostTensor ours = run(tessera::kSample, operands)[0];
    const HostTensor cpus = run_op(tessera::kSample, tessera::kSampleCpu, operands).results[0];
    for (std::int64_t r = 0; r < kRows; ++r) different += ours.at(r) != cpus.at(r) ? 1 : 0;
    draws += kRows;
  }
  std::printf("  %ld of %ld draws differ\n", static_cast<long>(different), static_cast<long>(draws));
  EXPECT_LE(different, 2);
}

TEST_F(OpenClTokens, LogProbabilities) {
  for (const std::int64_t n : {11, 700, 2048}) {
    const HostTensor logits = strange_logits(9, n);
    const HostTensor targets = int_tensor({9}, {0, 3, 1, 5, 2, 2, -1, 4096, 7});
    const std::vector<HostTensor> ours = run(tessera::kTopLogprobs, {logits, targets});
    const auto cpus = run_op(tessera::kTopLogprobs, tessera::kTopLogprobsCpu, {logits, targets}).results;
    expect_close(ours[0], cpus[0].values(), {2e-6, 2e-6}, "logprobs");
    EXPECT_EQ(ours[1].bytes, cpus[1].bytes) << "top ids of " << n;
    expect_close(ours[2], cpus[2].values(), {2e-6, 2e-6}, "top_logprobs");
    expect_close(run(tessera::kLogSoftmax, {logits})[0],
                 run_op(tessera::kLogSoftmax, tessera::kLogSoftmaxCpu, {logits}).results[0].values(), {2e-6, 2e-6},
                 "log_softmax");
  }
}

TEST_F(OpenClTokens, LogitEdits) {
  constexpr std::int64_t kVocab = 70;  // the last word of a mask is partly used
  const HostTensor logits = random_tensor(DType::kFloat32, {4, kVocab}, 21, -3, 3);
  HostTensor masks = tessera::testing::poisoned_tensor(DType::kInt32, {2, 3});
  masks.set_raw<std::uint32_t>(3, 0x0f0f1234u);
  masks.set_raw<std::uint32_t>(5, 5u);
  const std::vector<HostTensor> operands{logits,
                                         int_tensor({4}, {0, 3, -2, 6}),
                                         int_tensor({4}, {3, 2, 4, 100}),
                                         int_tensor({8}, {1, 69, 70, 5, -1, 7, 9, 11}),
                                         random_tensor(DType::kFloat32, {8}, 22, 1, 2),
                                         random_tensor(DType::kFloat32, {8}, 23),
                                         int_tensor({4}, {-1, 0, 1, 2}),
                                         masks};
  run(tessera::kLogitEdits, operands);
  const auto cpus = run_op(tessera::kLogitEdits, tessera::kLogitEditsCpu, operands).operands[0];
  expect_close(mutated_[0], cpus.values(), {1e-6, 1e-6}, "logit_edits");
}

}  // namespace
}  // namespace opencl_test
