// Catches: reads outside the table for wrong ids or for the ids of padding rows; a row that should use an id sampled in
// the last step, but uses another id.
#include "tessera/ops/embedding/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::infer_error;
using testing::int_tensor;

constexpr std::int32_t kGreatestId = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();

TEST(Embedding, CopiesRowsAndZerosForRowsOutside) {
  for (const DType dtype : testing::kFloatingDTypes) {
    for (const std::int64_t width : {67, 64}) {
      const HostTensor table = testing::random_tensor(dtype, {11, width}, 1);
      const std::int64_t given_width = width == 64 ? 3 * width : width;
      const HostTensor given = testing::random_tensor(dtype, {5, given_width}, 2);
      const std::vector<std::int32_t> ids{0, 10, 3, -1, 3, -2, 11, kGreatestId, kMin, -1, 7, 2};
      const std::vector<std::int32_t> rows{-1, kMin, -1, 4, 0, -1, -1, -1, -1, 2, 5, kGreatestId};
      const auto count = static_cast<std::int64_t>(ids.size());
      const auto out = testing::run_op(kEmbedding, kEmbeddingCpu,
                                       {int_tensor({count}, ids), table, int_tensor({count}, rows), given});
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int32_t id = ids[static_cast<std::size_t>(t)];
        const std::int32_t row = rows[static_cast<std::size_t>(t)];
        for (std::int64_t i = 0; i < width; ++i) {
          double expected = id >= 0 && id < 11 ? table.at(id * width + i) : 0;
          if (row >= 0) expected = row < 5 ? given.at(row * given_width + i) : 0;
          ASSERT_EQ(out.results[0].at(t * width + i), expected) << "id " << id << " row " << row;
        }
      }
    }
  }
}

// Given rows are not scaled. The scale is rounded to the storage type, so 0.3 is another number in each type.
TEST(Embedding, ScalesOnlyTheTablesRows) {
  for (const DType dtype : testing::kFloatingDTypes) {
    for (const std::int64_t width : {67, 64}) {
      const HostTensor table = testing::random_tensor(dtype, {11, width}, 1);
      const std::int64_t given_width = width == 64 ? 2 * width : width;
      const HostTensor given = testing::random_tensor(dtype, {5, given_width}, 2);
      HostTensor rounded = testing::poisoned_tensor(dtype, {1});
      rounded.set(0, static_cast<float>(0.3));
      const std::vector<std::int32_t> ids{0, 10, 3, -1, 11, 4};
      const std::vector<std::int32_t> rows{-1, -1, 4, -1, -1, 9};
      std::vector<double> scaled;
      std::vector<double> alone;
      for (std::size_t t = 0; t < ids.size(); ++t)
        for (std::int64_t i = 0; i < width; ++i) {
          const double of_id = ids[t] >= 0 && ids[t] < 11 ? table.at(ids[t] * width + i) * rounded.at(0) : 0;
          alone.push_back(of_id);
          scaled.push_back(rows[t] < 0 ? of_id : rows[t] < 5 ? given.at(rows[t] * given_width + i) : 0);
        }
      const ir::Attributes scale{{"scale", 0.3}};
      const auto with = testing::run_op(kEmbedding, kEmbeddingCpu,
                                        {int_tensor({6}, ids), table, int_tensor({6}, rows), given}, scale);
      testing::expect_close(with.results[0], scaled, testing::tolerance(dtype), "scaled");
      for (std::int64_t i = 0; i < width; ++i)
        EXPECT_EQ(with.results[0].at(2 * width + i), given.at(4 * given_width + i)) << "a given row is as it is";
      const auto without = testing::run_op(kEmbedding, kEmbeddingCpu, {int_tensor({6}, ids), table}, scale);
      testing::expect_close(without.results[0], alone, testing::tolerance(dtype), "nothing given");
    }
  }
}

// Slices of a table are spread over ranks. With a scale and without one, each row must come from exactly one slice, and
// given rows must come from the rank with the first slice.
TEST(Embedding, SlicesAddUpToTheTable) {
  for (const DType dtype : testing::kFloatingDTypes)
    for (const double scale : {1.0, 0.3}) {
      constexpr std::int64_t kWidth = 24;
      const HostTensor table = testing::random_tensor(dtype, {10, kWidth}, 1);
      const HostTensor given = testing::random_tensor(dtype, {5, kWidth}, 2);
      const HostTensor ids = int_tensor({9}, {0, 9, 4, 5, 6, -1, 10, kMin, kGreatestId});
      const HostTensor rows = int_tensor({9}, {-1, -1, -1, -1, 3, 0, -1, 7, -1});
      const auto whole =
          testing::run_op(kEmbedding, kEmbeddingCpu, {ids, table, rows, given}, {{"scale", scale}}).results[0];
      std::vector<double> sum(static_cast<std::size_t>(whole.size()));
      std::vector<int> givers(sum.size());
      for (const auto& [first, count] : {std::pair{0, 5}, std::pair{5, 3}, std::pair{8, 2}}) {
        HostTensor slice = testing::poisoned_tensor(dtype, {count, kWidth});
        for (std::int64_t i = 0; i < slice.size(); ++i) slice.set(i, table.at(first * kWidth + i));
        const ir::Attributes attributes{
            {"scale", scale}, {"first_row", std::int64_t{first}}, {"table_rows", std::int64_t{10}}};
        const auto part = testing::run_op(kEmbedding, kEmbeddingCpu, {ids, slice, rows, given}, attributes).results[0];
        for (std::size_t i = 0; i < sum.size(); ++i) {
          sum[i] += part.at(static_cast<std::int64_t>(i));
          givers[i] += part.at(static_cast<std::int64_t>(i)) != 0 ? 1 : 0;
        }
      }
      EXPECT_EQ(sum, whole.values());
      EXPECT_THAT(givers, ::testing::Each(::testing::Le(1)));
    }
}

TEST(Embedding, AcceptsZeroTokens) {
  const HostTensor table = testing::random_tensor(DType::kFloat32, {11, 8}, 1);
  const HostTensor given = testing::poisoned_tensor(DType::kFloat32, {3, 8});
  EXPECT_EQ(testing::run_op(kEmbedding, kEmbeddingCpu, {int_tensor({0}, {}), table, int_tensor({0}, {}), given})
                .results[0]
                .size(),
            0);
}

// Setting the last id and the last row to -1, as in padding, must change no other row.
TEST(Embedding, RowsAreIndependent) {
  HostTensor table = testing::random_tensor(DType::kBFloat16, {11, 1024}, 1);
  std::vector<std::int32_t> ids(64);
  std::vector<std::int32_t> rows(64, -1);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 11);
  rows[1] = 2;
  const HostTensor given = testing::random_tensor(DType::kBFloat16, {3, 1024}, 2);
  testing::expect_rows_independent(kEmbedding, kEmbeddingCpu,
                                   {int_tensor({64}, ids), table, int_tensor({64}, rows), given}, {0, 2});
}

TEST(Embedding, AddsAPartOfGivenRows) {
  for (const DType dtype : testing::kFloatingDTypes) {
    for (const std::int64_t width : {67, 64}) {
      const std::vector<std::int32_t> rows{-1, 0, 4, 5, kMin, kGreatestId, 2, 2};
      const HostTensor x = testing::random_tensor(dtype, {8, width}, 1);
      const HostTensor given = testing::random_tensor(dtype, {5, 3 * width}, 2);
      for (const std::int64_t part : {1, 2}) {
        const auto out = testing::run_op(kAddGiven, kAddGivenCpu, {x, int_tensor({8}, rows), given}, {{"part", part}});
        std::vector<double> expected = x.values();
        for (std::size_t t = 0; t < rows.size(); ++t)
          for (std::int64_t i = 0; rows[t] >= 0 && rows[t] < 5 && i < width; ++i)
            expected[t * static_cast<std::size_t>(width) + static_cast<std::size_t>(i)] +=
                given.at((rows[t] * 3 + part) * width + i);
        testing::expect_close(out.results[0], expected, testing::tolerance(dtype), "add_given");
      }
    }
  }
  const HostTensor x = testing::random_tensor(DType::kBFloat16, {40, 1024}, 1);
  const HostTensor given = testing::random_tensor(DType::kBFloat16, {3, 2048}, 2);
  std::vector<std::int32_t> rows(40, -1);
  rows[1] = 2;
  testing::expect_rows_independent(kAddGiven, kAddGivenCpu, {x, int_tensor({40}, rows), given}, {0, 1},
                                   {{"part", std::int64_t{1}}});
}

TEST(Embedding, AddGivenRefusesAnInvalidPart) {
  const ir::Type x{DType::kBFloat16, {Symbol::kTokens, 64}};
  const ir::Type rows{DType::kInt32, {Symbol::kTokens}};
  const auto error = [&](const ir::Type& given, std::int64_t part) {
    return infer_error(kAddGiven, {x, rows, given}, {{"part", part}});
  };
  EXPECT_EQ(error({DType::kBFloat16, {32, 192}}, 2), "");
  EXPECT_THAT(error({DType::kBFloat16, {32, 192}}, 3), HasSubstr("part = 3; accepted is 1 to 2"));
  EXPECT_THAT(error({DType::kBFloat16, {32, 192}}, 0), HasSubstr("part = 0"));
  EXPECT_THAT(error({DType::kBFloat16, {32, 100}}, 1), HasSubstr("a multiple of 64 columns"));
  EXPECT_THAT(error({DType::kFloat32, {32, 128}}, 1), HasSubstr("it must be bf16"));
}

TEST(Embedding, ResolveIdsReadsTheLastStepsIds) {
  const HostTensor ids = int_tensor({6}, {100, 101, 102, 103, 104, 105});
  const HostTensor rows = int_tensor({6}, {-1, 2, 0, kMin, 3, kGreatestId});
  const HostTensor last = int_tensor({3}, {7, 8, 9});
  const auto out = testing::run_op(kResolveIds, kResolveIdsCpu, {ids, rows, last});
  EXPECT_EQ(out.results[0].values(), (std::vector<double>{100, 9, 7, 103, -2, -2}));
  testing::expect_rows_independent(kResolveIds, kResolveIdsCpu, {ids, rows, last}, {0, 1});
}

TEST(Embedding, ResolveIdsReplacesGivenAndSampledIds) {
  const HostTensor ids = int_tensor({6}, {100, 5, 102, 103, 0, 105});
  const HostTensor rows = int_tensor({6}, {-1, -1, 0, 1, -1, kGreatestId});
  const HostTensor last = int_tensor({2}, {100, 8});
  const auto resolved = [&](const ir::Attributes& attributes) {
    return testing::run_op(kResolveIds, kResolveIdsCpu, {ids, rows, last}, attributes).results[0].values();
  };
  EXPECT_EQ(resolved({{"by", std::int64_t{3}}}), (std::vector<double>{100, 5, 100, 8, 0, -2}));
  EXPECT_EQ(resolved({{"by", std::int64_t{3}}, {"replaced", std::vector<std::int64_t>{5, 100}}}),
            (std::vector<double>{3, 3, 3, 8, 0, -2}));
  EXPECT_EQ(resolved({{"replaced", std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8}}}),
            (std::vector<double>{100, 0, 100, 0, 0, -2}));
}

TEST(Embedding, RefusesUnsupportedOperands) {
  const ir::Type ids{DType::kInt32, {Symbol::kTokens}};
  const ir::Type table{DType::kBFloat16, {1000, 64}};
  const ir::Type given{DType::kBFloat16, {32, 64}};
  EXPECT_EQ(testing::infer_types(kEmbedding, {ids, table, ids, given}).value()[0].to_string(), "bf16[T, 64]");
  EXPECT_THAT(infer_error(kEmbedding, {ids, table, ids, {DType::kFloat32, {32, 64}}}),
              HasSubstr("given is f32[32, 64]; it must be bf16 with 64 columns"));
  EXPECT_THAT(infer_error(kEmbedding, {ids, table, ids, {DType::kBFloat16, {32, 32}}}), HasSubstr("given is"));
  EXPECT_THAT(infer_error(kEmbedding, {ids, table, {DType::kInt32, {4}}, given}),
              HasSubstr("rows is i32[4]; it must be i32[T]"));
  EXPECT_THAT(infer_error(kEmbedding, {{DType::kInt64, {4}}, table, ids, given}),
              HasSubstr("ids is i64[4]; it must be i32[4]"));
  EXPECT_THAT(infer_error(kEmbedding, {{DType::kInt32, {4, 4}}, table, ids, given}),
              HasSubstr("must have 1 dimensions"));
  EXPECT_THAT(infer_error(kEmbedding, {ids, {DType::kInt32, {1000, 64}}, ids, given}), HasSubstr("table is i32"));
  EXPECT_THAT(infer_error(kEmbedding, {ids, {DType::kFloat32, {64}}, ids, given}), HasSubstr("table is f32[64]"));
  const auto slice = [&](std::int64_t first, std::int64_t all) {
    return infer_error(kEmbedding, {ids, table}, {{"first_row", first}, {"table_rows", all}});
  };
  EXPECT_EQ(slice(1000, 2000), "");
  EXPECT_THAT(slice(1001, 2000), HasSubstr("first_row = 1001 and table_rows = 2000; the 1000 rows must be a range"));
  EXPECT_THAT(slice(-1, 2000), HasSubstr("first_row = -1"));
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t all : {kLeast, kLeast + 999, std::int64_t{-1}, std::int64_t{999}, kMost})
    for (const std::int64_t first : {std::int64_t{0}, kMost})
      EXPECT_THAT(slice(first, all), HasSubstr("the 1000 rows must be a range of them")) << first << " of " << all;
  EXPECT_EQ(infer_error(kResolveIds, {ids, ids, {DType::kInt32, {Symbol::kRows}}}), "");
  EXPECT_THAT(infer_error(kResolveIds, {ids, {DType::kInt32, {4}}, ids}),
              HasSubstr("rows is i32[4]; it must be i32[T]"));
  EXPECT_THAT(infer_error(kResolveIds, {ids, ids, {DType::kInt64, {4}}}), HasSubstr("last_ids is i64[4]"));
  for (const std::vector<std::int64_t>& replaced : {std::vector<std::int64_t>(9, 1), {-1}, {std::int64_t{1} << 31}})
    EXPECT_THAT(infer_error(kResolveIds, {ids, ids, ids}, {{"replaced", replaced}}), HasSubstr("at most 8 ids"));
  EXPECT_THAT(infer_error(kResolveIds, {ids, ids, ids}, {{"by", std::int64_t{-1}}}),
              HasSubstr("by = -1; it must be in [0, "));
}

}  // namespace
}  // namespace tessera
