// Catches: a cost that belongs to another runner or size; an estimate without measurements; a disturbed measurement
// that replaces a better one; and a stored table that is misread, or accepted although it is damaged.
#include "tessera/runner/dispatch/costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum RunnerKind;

CostTable measured() {
  CostTable table;
  table.add(kPrefill, 64, 2.0);
  table.add(kPrefill, 128, 3.0);
  table.add(kPrefill, 256, 7.0);
  table.add(kDecode, 8, 1.0);
  table.add(kEager, 100, 5.0);
  table.add(kEager, 200, 6.0);
  table.add_full(64, {.ratio = 0.75, .equal = true});
  table.add_full(128, {.ratio = 1.5, .equal = false});
  return table;
}

TEST(CostTable, InterpolatesBetweenMeasuredNeighboursOfTheSameRunner) {
  const CostTable table = measured();
  const struct {
    RunnerKind runner;
    std::int64_t size;
    double ms;
  } cases[] = {{kPrefill, 64, 2.0},  {kPrefill, 96, 2.5},  {kPrefill, 127, 2.984375}, {kPrefill, 128, 3.0},
               {kPrefill, 192, 5.0}, {kPrefill, 256, 7.0}, {kPrefill, 1, 2.0},        {kPrefill, 63, 2.0},
               {kPrefill, 512, 14},  {kEager, 150, 5.5},   {kEager, 400, 12.0},       {kDecode, 8, 1.0}};
  for (const auto& c : cases) EXPECT_DOUBLE_EQ(table.ms(c.runner, c.size).value_or(-1), c.ms) << c.size;
}

TEST(CostTable, SmallerSizesCostNoMoreThanLargerOnes) {
  CostTable table;
  table.add(kPrefill, 32, 9.0);  // a disturbed measurement
  table.add(kPrefill, 64, 2.0);
  table.add(kPrefill, 128, 3.0);
  table.add(kEager, 32, 1.0);
  EXPECT_EQ(table.ms(kPrefill, 32), 2.0);
  EXPECT_EQ(table.ms(kPrefill, 48), 2.0);
  table.add(kPrefill, 32, 1.5);
  EXPECT_EQ(table.ms(kPrefill, 32), 1.5);
  EXPECT_EQ(CostTable::from_json(table.to_json()).value().ms(kPrefill, 48), 1.75);
}

TEST(CostTable, HasNoCostWithoutMeasurements) {
  const CostTable table = measured();
  EXPECT_EQ(table.ms(kDecode, 7), std::nullopt) << "one size of a runner says nothing of others";
  EXPECT_EQ(table.ms(kDecode, 9), std::nullopt);
  EXPECT_EQ(CostTable().ms(kEager, 1), std::nullopt);
  EXPECT_TRUE(CostTable().empty());
  EXPECT_EQ(table.size(), 6u);
  EXPECT_THAT(table.sizes(kPrefill), ElementsAre(64, 128, 256));
  EXPECT_THAT(table.sizes(kDecode), ElementsAre(8));
  EXPECT_TRUE(table.measured(kEager, 100));
  EXPECT_FALSE(table.measured(kPrefill, 100));
}

TEST(CostTable, TheSmallestMeasurementStays) {
  CostTable table = measured();
  table.add(kPrefill, 64, 2.5);
  EXPECT_EQ(table.ms(kPrefill, 64), 2.0);
  table.add(kPrefill, 64, 1.5);
  EXPECT_EQ(table.ms(kPrefill, 64), 1.5);
  EXPECT_EQ(table.size(), 6u);
}

TEST(CostTable, AFullGraphWinsWhenEqualAndFaster) {
  CostTable table;
  const auto wins = [&](double ratio, bool equal) {
    table.add_full(64, {.ratio = ratio, .equal = equal});
    return table.full_wins(64);
  };
  EXPECT_TRUE(wins(0.9, true));
  EXPECT_FALSE(wins(0.9, false));
  EXPECT_TRUE(wins(0.99, true));
  EXPECT_FALSE(wins(0.995, true)) << "within the margin";
  EXPECT_FALSE(wins(1.2, true));
  EXPECT_FALSE(table.full_wins(128)) << "not measured";
}

TEST(CostTable, IsTheSameAfterJson) {
  const std::string text = measured().to_json().dump();
  EXPECT_EQ(
      text,
      R"({"prefill": [[64, 2.0], [128, 3.0], [256, 7.0]], "decode": [[8, 1.0]], "eager": [[100, 5.0], [200, 6.0]], "full": [[64, 0.75, true], [128, 1.5, false]]})");
  const Result<Json> json = Json::parse(text, "costs");
  ASSERT_TRUE(json.ok());
  const Result<CostTable> again = CostTable::from_json(*json);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->to_json(), measured().to_json());
  const Result<CostTable> none = CostTable::from_json(CostTable().to_json());
  ASSERT_TRUE(none.ok()) << none.status().to_string();
  EXPECT_TRUE(none->empty());
}

TEST(CostTable, RefusesEveryOtherForm) {
  const struct {
    const char* text;
    const char* named;
  } cases[] = {
      {"[]", "no object"},
      {"{}", "no object"},
      {R"({"prefill":[],"decode":[]})", "no object"},
      {R"({"prefill":[],"decode":[],"eager":[]})", "no object"},
      {R"({"prefill":[],"decode":[],"eager":[],"vision":[]})", "full is no list"},
      {R"({"prefill":[],"decode":[],"vision":[],"full":[]})", "eager is no list"},
      {R"({"prefill":{},"decode":[],"eager":[],"full":[]})", "prefill is no list"},
      {R"({"prefill":[64],"decode":[],"eager":[],"full":[]})", "prefill has 64"},
      {R"({"prefill":[],"decode":[[1,2,3]],"eager":[],"full":[]})", "decode has [1, 2, 3]"},
      {R"({"prefill":[],"decode":[["1",2]],"eager":[],"full":[]})", R"(decode has ["1", 2])"},
      {R"({"prefill":[],"decode":[],"eager":[[1,"2"]],"full":[]})", R"(eager has [1, "2"])"},
      {R"({"prefill":[[0,1]],"decode":[],"eager":[],"full":[]})", "prefill has [0, 1]"},
      {R"({"prefill":[[1.5,1]],"decode":[],"eager":[],"full":[]})", "prefill has [1.5, 1]"},
      {R"({"prefill":[[1048577,1]],"decode":[],"eager":[],"full":[]})", "1048577"},
      {R"({"prefill":[[4,0]],"decode":[],"eager":[],"full":[]})", "prefill has [4, 0]"},
      {R"({"prefill":[[4,-1]],"decode":[],"eager":[],"full":[]})", "prefill has [4, -1]"},
      {R"({"prefill":[[4,1],[4,2]],"decode":[],"eager":[],"full":[]})", "prefill has [4, 2]"},
      {R"({"prefill":[],"decode":[],"eager":[],"full":[[4,0.5]]})", "full has [4, 0.5]"},
      {R"({"prefill":[],"decode":[],"eager":[],"full":[[4,0,true]]})", "full has [4, 0, true]"},
      {R"({"prefill":[],"decode":[],"eager":[],"full":[[4,0.5,1]]})", "full has [4, 0.5, 1]"},
      {R"({"prefill":[],"decode":[],"eager":[],"full":[[0,0.5,true]]})", "full has [0, 0.5, true]"},
      {R"({"prefill":[],"decode":[],"eager":[],"full":[[4,0.5,true],[4,0.6,true]]})", "full has [4, 0.6, true]"},
  };
  for (const auto& c : cases) {
    const Result<Json> json = Json::parse(c.text, "costs");
    ASSERT_TRUE(json.ok()) << c.text;
    const Status status = CostTable::from_json(*json).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << c.text;
    EXPECT_THAT(status.message(), HasSubstr(c.named));
  }
  // JSON text cannot express infinity, but a Json value in memory can.
  Json endless = CostTable().to_json();
  endless.set("eager", Json(Json::Array{Json(Json::Array{Json(4), Json(std::numeric_limits<double>::infinity())})}));
  EXPECT_EQ(CostTable::from_json(endless).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tessera
