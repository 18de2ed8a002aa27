// Catches: forwards that do not use the piecewise backend of their device type, and a backend that replaces the backend
// of another device type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/piecewise/keeping_backend_test_util.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::ids;
using testing::KeepingBackend;
using testing::make_captured;
using testing::Rows;
using testing::RunnerBench;
using ::testing::SizeIs;
using testing::small_options;
using testing::TestRequest;

TEST(RegisteredPiecewiseBackend, CapturesTheForwardsOfItsDevices) {
  const std::vector<TestRequest> prompt = {{ids(16, 2)}};
  const std::vector<TestRequest> next = {{ids(17, 2), 16}};
  RunnerBench recording = make_captured("llama", small_options());
  const auto keeping = std::make_shared<KeepingBackend>();
  Registry registry = built_in_registry();
  ASSERT_TRUE(registry.piecewise_backends.add("cpu", keeping).ok());
  RunnerOptions options = small_options();
  options.registry = std::make_shared<const Registry>(std::move(registry));
  RunnerBench bench = make_captured("llama", options);
  EXPECT_EQ(bench.device->counts().begun_recordings, 0);
  EXPECT_THAT(keeping->captured, SizeIs(3 * 4 + 3)) << "3 prefill sizes of 4 pieces, and 3 decode sizes";
  Decision decision;
  EXPECT_EQ(bench.logits(prompt, Rows::kAll, false, &decision), recording.logits(prompt));
  EXPECT_EQ(decision.reason, Reason::kExactSize);
  EXPECT_EQ(keeping->launches, 4);
  EXPECT_EQ(bench.logits(next, Rows::kAll, false, &decision), recording.logits(next));
  EXPECT_EQ(decision.runner, RunnerKind::kDecode);
  EXPECT_EQ(keeping->launches, 5);
}

TEST(RegisteredPiecewiseBackend, ATypeHasOne) {
  PiecewiseBackends backends;
  const auto keeping = std::make_shared<KeepingBackend>();
  ASSERT_TRUE(backends.add("npu", keeping).ok());
  EXPECT_EQ(&backends.of("npu"), keeping.get());
  EXPECT_EQ(&backends.of("cpu"), &recording_backend());
  EXPECT_THAT(backends.add("npu", keeping).message(), HasSubstr("\"npu\" have a piecewise backend already"));
}

}  // namespace
}  // namespace tessera
