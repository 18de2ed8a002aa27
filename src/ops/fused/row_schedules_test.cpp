// Tests the list of the fastest schedules. A schedule is how a device divides a row kernel's rows among threads.
// Catches: schedules that are measured twice or on another device; a process that does not get the results of an
// earlier process, or loses its own; a damaged list that is accepted in part.
#include "tessera/ops/fused/row_schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ops/fused/row_kernel_builder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

class NoCode final : public RowKernelCode {
 public:
  std::int64_t rows(const BindArgs&) const override { return 1; }
  std::vector<std::int64_t> schedules(const BindArgs&) const override { return {1, 2}; }
  Result<std::unique_ptr<BoundOp>> bind(const BindArgs&, std::int64_t) const override {
    return internal_error("never bound");
  }
};

const RowProblem kFirst{.kernel = std::string(32, '1'), .rows = 64};
const RowProblem kSecond{.kernel = std::string(32, '2'), .rows = 8};
MeasuredSchedules measured(std::int64_t chosen) {
  return {.name = "add, norm", .chosen = chosen, .us = {{128, 3.5}, {64, 2.25}}};
}

TEST(RowSchedules, AProblemIsMeasuredOnceOnItsDevice) {
  const auto device = CpuDevice::create({.threads = 1}).value();
  const auto other = CpuDevice::create({.threads = 1}).value();
  auto code = std::make_shared<NoCode>();
  RowSchedules known;
  known.note(kFirst, {.name = "first", .code = code, .operands = {}, .results = {}, .device = device.get()});
  EXPECT_FALSE(known.take_unmeasured(*other).has_value());
  const auto taken = known.take_unmeasured(*device);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->first, kFirst);
  known.note(kFirst, {.name = "first", .code = code, .operands = {}, .results = {}, .device = device.get()});
  EXPECT_FALSE(known.take_unmeasured(*device).has_value()) << "it was given out";

  known.improve(kSecond, measured(64));
  known.note(kSecond, {.name = "second", .code = code, .operands = {}, .results = {}, .device = device.get()});
  EXPECT_FALSE(known.take_unmeasured(*device).has_value()) << "it is known";
  const RowProblem third{.kernel = kFirst.kernel, .rows = 65};
  known.note(third, {.name = "third", .code = code, .operands = {}, .results = {}, .device = device.get()});
  code.reset();
  EXPECT_FALSE(known.take_unmeasured(*device).has_value()) << "its engine is gone";
}

TEST(RowSchedules, LaterProcessesLearnAndKeepTheirOwn) {
  RowSchedules earlier;
  earlier.improve(kFirst, measured(64));
  earlier.improve(kSecond, measured(128));
  RowSchedules later;
  later.improve(kSecond, measured(64));
  ASSERT_TRUE(later.remember(*Json::parse(earlier.to_json().dump(), "list")).ok());
  EXPECT_EQ(later.chosen(kFirst), 64);
  EXPECT_EQ(later.chosen(kSecond), 64);
  EXPECT_EQ(later.measured().at(kFirst), measured(64));
  EXPECT_EQ(later.chosen({.kernel = kFirst.kernel, .rows = 63}), std::nullopt);
}

TEST(RowSchedules, MalformedListsAreRefusedAsAWhole) {
  RowSchedules earlier;
  earlier.improve(kFirst, measured(64));
  const std::string good = earlier.to_json().as_array().front().dump();
  const std::string key = std::string(32, '3');
  const std::string bads[] = {"7",
                              "[]",
                              "[\"3\", 8, \"x\", 1, [[1, 2.0]]]",
                              "[\"" + key + "\", 0, \"x\", 1, [[1, 2.0]]]",
                              "[\"" + key + "\", 8, \"x\", 2, [[1, 2.0]]]",
                              "[\"" + key + "\", 8, \"x\", 1, [[1, -2.0]]]",
                              "[\"" + key + "\", 8, \"x\", 1, [[1]]]"};
  for (const std::string& bad : bads) {
    RowSchedules later;
    const Status status = later.remember(*Json::parse("[" + good + ", " + bad + "]", "list"));
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << bad;
    EXPECT_THAT(status.message(), HasSubstr("measured schedules"));
    EXPECT_TRUE(later.measured().empty()) << bad;
  }
  EXPECT_EQ(RowSchedules().remember(Json(1)).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tessera
