// Catches: parts that are joined in the wrong order; rows that are read with the wrong length; a part that overwrites
// its neighbour.
#include "tessera/ops/rows/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::infer_error;
using testing::random_tensor;

TEST(Join, LaysRowsSideBySide) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt32, DType::kUInt8})
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{64}, {64, 64, 64, 64}, {1, 7, 3}, {8, 8, 8, 8, 8, 8, 8, 16}}) {
      std::vector<HostTensor> parts;
      std::int64_t cols = 0;
      for (const std::int64_t size : sizes) {
        parts.push_back(random_tensor(dtype, {5, size}, static_cast<std::uint32_t>(parts.size()), 0, 100));
        cols += size;
      }
      const auto out = testing::run_op(kJoin, kJoinCpu, parts);
      ASSERT_EQ(out.results[0].dims, (std::vector<std::int64_t>{5, cols}));
      for (std::int64_t row = 0; row < 5; ++row) {
        std::int64_t column = row * cols;
        for (const HostTensor& part : parts)
          for (std::int64_t i = 0; i < part.dims[1]; ++i)
            ASSERT_EQ(out.results[0].at(column++), part.at(row * part.dims[1] + i));
      }
    }
}

TEST(Join, RefusesUnsupportedOperands) {
  const ir::Type x{DType::kBFloat16, {Symbol::kVisionRows, 64}};
  EXPECT_EQ(testing::infer_types(kJoin, {x, x, x}).value()[0].to_string(), "bf16[S, 192]");
  EXPECT_THAT(infer_error(kJoin, {x, {DType::kFloat32, {Symbol::kVisionRows, 64}}}), HasSubstr("x1 is f32[S, 64]"));
  EXPECT_THAT(infer_error(kJoin, {x, {DType::kBFloat16, {Symbol::kTokens, 64}}}), HasSubstr("x1 is bf16[T, 64]"));
}

}  // namespace
}  // namespace tessera
