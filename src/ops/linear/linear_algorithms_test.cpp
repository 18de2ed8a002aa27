// Catches: an algorithm that is returned for another problem than its own; a digit that is lost between writing and
// reading a file; a malformed file that is accepted in part.
#include "tessera/ops/linear/linear_algorithms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/linear/linear.h"

namespace tessera {
namespace {

OpaqueAlgorithm algorithm_of(std::uint64_t first) {
  return {first, 0, ~std::uint64_t{0}, 0x0123456789abcdef, 1, 2, 3, first << 32};
}

TEST(LinearAlgorithms, ComeBackFromJsonByShape) {
  const LinearShape base{.m = 8, .n = 16, .k = 32, .dtype = ir::DType::kBFloat16, .bias = false, .any_rows = false};
  std::vector<LinearShape> shapes(7, base);
  shapes[1].m = 9;
  shapes[2].n = 8;
  shapes[3].k = 8;
  shapes[4].dtype = ir::DType::kFloat16;
  shapes[5].bias = true;
  shapes[6].any_rows = true;
  LinearAlgorithms chosen;
  for (std::size_t i = 0; i < shapes.size(); ++i) chosen.note(shapes[i], algorithm_of(i));
  EXPECT_EQ(chosen.chosen(base), algorithm_of(0));

  LinearAlgorithms next;
  const Json file = *Json::parse(chosen.to_json().dump(), "file");
  ASSERT_TRUE(next.remember(file).ok());
  for (std::size_t i = 0; i < shapes.size(); ++i) EXPECT_EQ(next.chosen(shapes[i]), algorithm_of(i)) << i;
  LinearShape other = base;
  other.m = 10;
  EXPECT_EQ(next.chosen(other), std::nullopt);
  EXPECT_EQ(next.to_json(), file) << "what is not needed now is kept for others";
  next.note(base, algorithm_of(77));
  EXPECT_EQ(next.to_json().as_array().size(), shapes.size());
  LinearAlgorithms after;
  ASSERT_TRUE(after.remember(next.to_json()).ok());
  EXPECT_EQ(after.chosen(base), algorithm_of(77)) << "a newer choice counts";
}

// A process uses a measurement of an earlier process and does not repeat it. A running process keeps the algorithms
// that its problems began with.
TEST(LinearAlgorithms, AreMeasuredForLaterProcesses) {
  const LinearShape shape{.m = 8, .n = 16, .k = 32, .dtype = ir::DType::kBFloat16};
  LinearShape of_any_rows = shape;
  of_any_rows.any_rows = true;
  LinearShape float32 = shape;
  float32.dtype = ir::DType::kFloat32;
  LinearAlgorithms first;
  for (const LinearShape& s : {of_any_rows, float32}) first.note(s, algorithm_of(1));
  EXPECT_EQ(first.take_unmeasured(), std::nullopt) << "one for all rows, and 32 bits, are not measured";
  first.note(shape, algorithm_of(1));
  EXPECT_EQ(first.take_unmeasured(), std::pair(shape, algorithm_of(1)));
  EXPECT_EQ(first.take_unmeasured(), std::nullopt) << "another engine of the process has it";
  first.improve(shape, algorithm_of(2));
  EXPECT_EQ(first.chosen(shape), algorithm_of(1)) << "bits do not change under a running engine";

  LinearAlgorithms second;
  ASSERT_TRUE(second.remember(first.to_json()).ok());
  EXPECT_EQ(second.chosen(shape), algorithm_of(2));
  second.note(shape, algorithm_of(2));
  EXPECT_EQ(second.take_unmeasured(), std::nullopt) << "measured before";
  EXPECT_EQ(second.to_json(), first.to_json());

  LinearAlgorithms third;  // stands for a process whose library refuses the measured algorithm
  ASSERT_TRUE(third.remember(first.to_json()).ok());
  third.note(shape, algorithm_of(3));
  EXPECT_EQ(third.take_unmeasured(), std::pair(shape, algorithm_of(3)));

  LinearAlgorithms beside;  // stands for a process that began before the first one had measured
  beside.note(shape, algorithm_of(1));
  ASSERT_TRUE(beside.learn(first.to_json()).ok());
  EXPECT_EQ(beside.chosen(shape), algorithm_of(1));
  EXPECT_EQ(beside.take_unmeasured(), std::nullopt);
  LinearAlgorithms later;
  ASSERT_TRUE(later.remember(beside.to_json()).ok());
  EXPECT_EQ(later.chosen(shape), algorithm_of(2)) << "what it writes at its end loses nothing";
  EXPECT_EQ(beside.learn(Json::object()).code(), StatusCode::kDataLoss);
}

TEST(LinearAlgorithms, AreKeptForALimitedNumberOfProblems) {
  const auto shape = [](std::int64_t m) { return LinearShape{.m = m, .n = 16, .k = 32}; };
  const auto most = static_cast<std::int64_t>(LinearAlgorithms::kMost);
  LinearAlgorithms before;
  for (std::int64_t m = 1; m <= most + 5; ++m) before.note(shape(m), algorithm_of(1));
  const Json full = before.to_json();
  EXPECT_EQ(full.as_array().size(), LinearAlgorithms::kMost);
  LinearAlgorithms now;
  ASSERT_TRUE(now.remember(full).ok());
  now.note(shape(most + 9), algorithm_of(2));
  LinearAlgorithms after;
  ASSERT_TRUE(after.remember(now.to_json()).ok());
  EXPECT_EQ(after.to_json().as_array().size(), LinearAlgorithms::kMost);
  EXPECT_EQ(after.chosen(shape(most + 9)), algorithm_of(2)) << "this process's own come first";
}

TEST(LinearAlgorithms, MalformedJsonIsRefusedAsAWhole) {
  const std::string hex(128, 'a');
  const std::string good = R"(["bf16",1,2,3,false,true,")" + hex + R"(",false])";
  LinearAlgorithms algorithms;
  ASSERT_TRUE(algorithms.remember(*Json::parse("[" + good + "]", "x")).ok());
  for (const std::string& bad :
       {std::string("{}"), std::string("[1]"), std::string("[[]]"),
        R"([["bf17",1,2,3,false,true,")" + hex + "\",false]]", R"([["bf16",0,2,3,false,true,")" + hex + "\",false]]",
        R"([["bf16",1,2,3,0,true,")" + hex + "\",false]]",
        R"([["bf16",1,2,3,false,true,")" + hex.substr(1) + "\",false]]",
        R"([["bf16",1,2,3,false,true,"g)" + hex.substr(1) + "\",false]]",
        R"([["bf16",1,2,3,false,true,"-)" + hex.substr(1) + "\",false]]",
        R"([["bf16",1,2,3,false,true,")" + hex + "\"]]", R"([["bf16",1,2,3,false,true,")" + hex + "\",1]]",
        "[" + good + R"(, ["bf16",4,2,3,false,true,7,false]])"}) {
    const Status status = algorithms.remember(*Json::parse(bad, "x"));
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << bad;
  }
  const LinearShape kept{.m = 1, .n = 2, .k = 3, .dtype = ir::DType::kBFloat16, .bias = false, .any_rows = true};
  const LinearShape refused{.m = 4, .n = 2, .k = 3, .dtype = ir::DType::kBFloat16, .bias = false, .any_rows = true};
  EXPECT_TRUE(algorithms.chosen(kept));
  EXPECT_FALSE(algorithms.chosen(refused));
}

// Returns the entry of `algorithms` for the product of x [m, 256] and w [128, 256] in bfloat16.
Json entry_of(std::int64_t m, const Json& algorithms) {
  for (const Json& entry : algorithms.as_array()) {
    const Json::Array& e = entry.as_array();
    if (e[0] == Json("bf16") && e[1] == Json(m) && e[2] == Json(128) && e[3] == Json(256)) return entry;
  }
  return {};
}

void check_product(std::int64_t m) {
  const testing::HostTensor x = testing::random_tensor(ir::DType::kBFloat16, {m, 256}, 1);
  const testing::HostTensor w = testing::random_tensor(ir::DType::kBFloat16, {128, 256}, 2);
  std::vector<double> y;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < 128; ++j) {
      y.push_back(0);
      for (std::int64_t p = 0; p < 256; ++p) y.back() += x.at(i * 256 + p) * w.at(j * 256 + p);
    }
  }
  const auto out = testing::run_op(kLinear, kLinearCpu, {x, w}, {{"bias", false}, {"residual", false}});
  testing::expect_close(out.results[0], y, testing::tolerance(ir::DType::kBFloat16), "product");
}

// The library accepts an algorithm that it chose for another number of rows, and rejects an invented algorithm.
TEST(LinearAlgorithms, TheLibraryRefusesAlgorithmsThatDoNotServe) {
  const Backend& backend = **testing::test_devices().backend(testing::test_device().properties().type);
  if (backend.export_algorithms == nullptr) GTEST_SKIP() << "this device's libraries choose no algorithms";
  EXPECT_FALSE(backend.versions().empty());
  check_product(72);
  const Json chosen = entry_of(72, backend.export_algorithms());
  ASSERT_TRUE(chosen.is_array()) << backend.export_algorithms().dump();
  Json other = chosen;
  other.as_array()[1] = 80;
  Json made_up = chosen;
  made_up.as_array()[1] = 88;
  made_up.as_array()[6] = std::string(128, 'f');
  ASSERT_TRUE(backend.import_algorithms(Json::Array{other, made_up}).ok());
  check_product(80);
  check_product(88);
  EXPECT_EQ(entry_of(80, backend.export_algorithms()), other);
  EXPECT_NE(entry_of(88, backend.export_algorithms()), made_up);
  EXPECT_EQ(backend.import_algorithms(Json::object()).code(), StatusCode::kDataLoss);
}

// An idle process measures all linears that it has bound, and the algorithms that it finds compute the same products.
TEST(LinearAlgorithms, MeasuredAlgorithmsServeLaterProcesses) {
  const Backend& backend = **testing::test_devices().backend(testing::test_device().properties().type);
  if (backend.measure_algorithms == nullptr) GTEST_SKIP() << "this device's libraries are not measured";
  check_product(96);
  int measured = 0;
  for (; *backend.measure_algorithms(testing::test_device()); ++measured) ASSERT_LT(measured, 1000);
  EXPECT_GE(measured, 1);
  Json later = entry_of(96, backend.export_algorithms());
  ASSERT_TRUE(later.is_array());
  EXPECT_EQ(later.as_array()[7], Json(true));
  later.as_array()[1] = 112;  // a number of rows that this process has not bound
  ASSERT_TRUE(backend.import_algorithms(Json::Array{later}).ok());
  check_product(112);
  EXPECT_EQ(entry_of(112, backend.export_algorithms()), later);
}

}  // namespace
}  // namespace tessera
