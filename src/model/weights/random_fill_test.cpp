// Catches: dummy weights that differ between ranks, thread counts or types, so that a tensor-parallel run could not be
// compared with a run on one rank; dummy weights that repeat or are not uniform.
#include "tessera/model/weights/random_fill.h"

#include <chrono>
#include <cmath>

#include "tessera/base/float16.h"
#include "tessera/model/test_support.h"

namespace tessera {
namespace {

SliceRuns elements_from(std::int64_t first, std::int64_t count) {
  return {.num_runs = 1, .run = count, .stride = count, .start = first};
}

using test::expect_error;

std::vector<float> filled(std::int64_t first, std::size_t count, std::uint64_t seed, float scale) {
  std::vector<float> values(count);
  const Status status = fill_random_runs(std::as_writable_bytes(std::span(values)), StoredDtype::kF32,
                                         elements_from(first, std::ssize(values)), seed, scale);
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

TEST(FillRandom, AnElementDependsOnlyOnItsIndex) {
  const std::vector<float> whole = filled(0, 200000, 7, 0.5f);
  for (const auto& [first, count] :
       {std::pair<std::size_t, std::size_t>{1, 5}, {2, 1}, {3, 4096}, {1023, 2}, {1024, 1025}, {99999, 100001}}) {
    const std::vector<float> part = filled(static_cast<std::int64_t>(first), count, 7, 0.5f);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], whole[first + i]) << first << " + " << i;
  }
}

TEST(FillRandom, SlicesMatchCopiesOfTheWhole) {
  const std::vector<std::int64_t> shape = {6, 10, 7};
  const std::vector<float> whole = filled(0, 420, 11, 0.1f);
  const StoredTensor view{"w", StoredDtype::kF32, shape, std::as_bytes(std::span(whole))};
  for (StoredDtype dtype : {StoredDtype::kF32, StoredDtype::kF16, StoredDtype::kBF16}) {
    for (const TensorSlice& slice : {TensorSlice{}, TensorSlice{0, 2, 3}, TensorSlice{1, 5, 5}, TensorSlice{2, 3, 1}}) {
      const auto bytes = static_cast<std::size_t>(slice_runs(shape, slice)->num_elements() * stored_dtype_bytes(dtype));
      std::vector<std::byte> made(bytes), copied(bytes);
      ASSERT_TRUE(fill_random(made, dtype, shape, slice, 11, 0.1f).ok());
      ASSERT_TRUE(copy_tensor(view, slice, dtype, copied).ok());
      EXPECT_EQ(made, copied);
    }
  }
}

TEST(FillRandom, IsUniformAndSeedsDiffer) {
  const std::size_t count = 400000;
  const std::vector<float> values = filled(0, count, 3, 2.0f);
  double sum = 0, squares = 0, neighbours = 0;
  std::vector<int> bins(16);
  for (std::size_t i = 0; i < count; ++i) {
    const double v = values[i];
    ASSERT_TRUE(v >= -2.0 && v < 2.0);
    sum += v;
    squares += v * v;
    if (i > 0) neighbours += v * values[i - 1];
    ++bins[static_cast<std::size_t>((v + 2) / 4 * 16)];
  }
  const double n = static_cast<double>(count);
  std::printf("mean %.5f, variance %.5f (4/3), correlation of neighbours %.5f\n", sum / n, squares / n,
              neighbours / squares);
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 4.0 / 3.0, 0.01);
  EXPECT_NEAR(neighbours / squares, 0, 0.01);
  for (int bin : bins) EXPECT_NEAR(bin, n / 16, 6 * std::sqrt(n / 16));
  EXPECT_NE(filled(0, 8, 3, 2.0f), filled(0, 8, 4, 2.0f));
  EXPECT_NE(tensor_seed(1, "a"), tensor_seed(1, "b"));
  EXPECT_NE(tensor_seed(1, "a"), tensor_seed(2, "a"));
  EXPECT_EQ(tensor_seed(1, "a"), tensor_seed(1, "a"));
}

// The values must be the same on every machine and in every version, because outputs of dummy models are compared
// between machines and versions.
TEST(FillRandom, FirstValuesDoNotChange) {
  const std::vector<float> values = filled(0, 4, 0, 32768.0f);
  // SplitMix64 with seed 0 begins with 0xe220a8397b1dcdaf. The values are the four 16-bit parts of this word, the
  // lowest first, as signed numbers.
  EXPECT_THAT(values, ::testing::ElementsAre(-12881.0f, 31517.0f, -22471.0f, -7648.0f));
}

TEST(FillRandom, RefusesOtherTypesAndSizes) {
  std::vector<std::byte> buffer(10);
  expect_error(fill_random_runs(buffer, StoredDtype::kI32, elements_from(0, 2), 1, 1.0f), StatusCode::kInvalidArgument,
               {"I32", "BF16"});
  expect_error(fill_random_runs(buffer, StoredDtype::kF32, elements_from(0, 2), 1, 1.0f), StatusCode::kInvalidArgument,
               {"10 bytes", "F32"});
  const std::vector<std::int64_t> shape = {2, 3};
  expect_error(fill_random(buffer, StoredDtype::kBF16, shape, {}, 1, 1.0f), StatusCode::kInvalidArgument,
               {"10 bytes", "12"});
  expect_error(fill_random(buffer, StoredDtype::kBF16, shape, {1, 2, 2}, 1, 1.0f), StatusCode::kInvalidArgument,
               {"[2, 3]"});
}

TEST(FillRandom, Speed) {
  std::vector<std::byte> buffer(32u << 20);
  for (StoredDtype dtype : {StoredDtype::kF32, StoredDtype::kBF16, StoredDtype::kF16}) {
    double best = 1e9;
    for (int round = 0; round < 4; ++round) {
      const auto start = std::chrono::steady_clock::now();
      ASSERT_TRUE(
          fill_random_runs(buffer, dtype, elements_from(0, std::ssize(buffer) / stored_dtype_bytes(dtype)), 5, 0.02f)
              .ok());
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::printf("fill %s: %.0f MB/s\n", std::string(stored_dtype_name(dtype)).c_str(),
                static_cast<double>(buffer.size()) / best / 1e6);
  }
}

}  // namespace
}  // namespace tessera
