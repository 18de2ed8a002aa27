// Catches, in the kernels that read weights before the preceding kernels have ended: results that differ from the
// general kernel's for some number of rows, matrix size or type, or with a bias and a residual; memory past the last
// row of x that changes y; memory past the last row of y that is written; results that change from run to run; and rows
// whose bits depend on the number of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/contract/op_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using testing::HostTensor;
using testing::on_cuda;
using testing::random_tensor;
using testing::test_device;
using testing::test_devices;

struct WeightSize {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};

// One linear on the device, with or without bias and residual.
class WeightLinear {
 public:
  WeightLinear(DType dtype, WeightSize size, bool terms)
      : y_(testing::poisoned_tensor(dtype, {size.rows + 1, size.out})), terms_(terms) {
    operands_ = {place(random_tensor(dtype, {size.rows, size.in}, 1)),
                 place(random_tensor(dtype, {size.out, size.in}, 2, -0.1, 0.1))};
    if (terms) operands_.push_back(place(random_tensor(dtype, {size.out}, 3)));
    if (terms) operands_.push_back(place(random_tensor(dtype, {size.rows, size.out}, 4)));
    result_ = place(y_);
    result_.dims[0] = size.rows;
  }

  // Returns the rows of y, and one more row after them that stays NaN.
  Result<HostTensor> run(bool is_weight) {
    operands_[1].is_weight = is_weight;
    const ir::Node node =
        testing::make_node(**built_in_ops().get("linear"), operands_.size(), {{"bias", terms_}, {"residual", terms_}});
    const KernelDef* kernel = TRY((**test_devices().kernels(test_device().properties().type)).get("linear"));
    const std::vector<TensorView> results{result_};
    BindArgs args{node, operands_, results, {}, test_device(), context_};
    const std::unique_ptr<Allocation> workspace =
        TRY(test_device().allocate(TRY(kernel->workspace_bytes(args)) + 1, "workspace"));
    args.workspace = workspace->data();
    TRY(stream_->fill(result_.data, 0xff, y_.bytes.size()));
    const std::unique_ptr<BoundOp> op = TRY(kernel->bind(args));
    TRY(op->enqueue(*stream_));
    TRY(stream_->download(y_.bytes.data(), result_.data, y_.bytes.size()));
    TRY(stream_->synchronize());
    return y_;
  }

 private:
  TensorView place(const HostTensor& tensor) {
    memory_.push_back(*test_device().allocate(tensor.bytes.size(), "test tensor"));
    EXPECT_TRUE(stream_->upload(memory_.back()->data(), tensor.bytes.data(), tensor.bytes.size()).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    return tensor.view(memory_.back()->data());
  }

  ForwardContext context_;
  std::unique_ptr<Stream> stream_ = *test_device().create_stream("test");
  std::vector<std::unique_ptr<Allocation>> memory_;
  HostTensor y_;
  bool terms_;
  std::vector<TensorView> operands_;
  TensorView result_;
};

TEST(WeightLinears, EqualLinearsOfUnmarkedMatrices) {
  if (!on_cuda()) GTEST_SKIP() << "this device computes both by one kernel";
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (const WeightSize size : {WeightSize{1, 1024, 64},     WeightSize{8, 2048, 1024},   WeightSize{16, 3072, 1024},
                                  WeightSize{17, 1024, 4096},  WeightSize{24, 2048, 1024},  WeightSize{31, 3072, 1024},
                                  WeightSize{32, 1024, 4096},  WeightSize{33, 2048, 1024},  WeightSize{48, 1056, 128},
                                  WeightSize{64, 3072, 1024},  WeightSize{2, 72, 72},       WeightSize{9, 4096, 6144},
                                  WeightSize{33, 4304, 1152},  WeightSize{63, 200, 4104},   WeightSize{20, 64, 200},
                                  WeightSize{65, 1024, 4096},  WeightSize{1, 6912, 1152},   WeightSize{2, 1184, 64},
                                  WeightSize{2, 3104, 4256},   WeightSize{3, 4128, 48},     WeightSize{12, 3104, 96},
                                  WeightSize{7, 1120, 4240},   WeightSize{97, 72, 64},      WeightSize{128, 2048, 1024},
                                  WeightSize{128, 1024, 4096}, WeightSize{129, 1024, 1024}, WeightSize{200, 2048, 1024},
                                  WeightSize{256, 3072, 1024}})
      for (const bool terms : {false, true}) {
        WeightLinear linear(dtype, size, terms);
        const Result<HostTensor> actual = linear.run(true);
        ASSERT_TRUE(actual.ok()) << actual.status().to_string();
        const Result<HostTensor> again = linear.run(true);
        const Result<HostTensor> expected = linear.run(false);
        ASSERT_TRUE(expected.ok()) << expected.status().to_string();
        EXPECT_EQ(actual->bytes, again->bytes) << "a second run gives other bits";
        testing::Tolerance allowed = testing::tolerance(dtype, 4);
        allowed.absolute = dtype == DType::kBFloat16 ? 0.03 : 0.004;
        testing::expect_close(*actual, expected->values(), allowed,
                              "linear of " + std::to_string(size.rows) + " rows, k " + std::to_string(size.in) +
                                  ", n " + std::to_string(size.out) + (terms ? ", bias and residual" : ""));
      }
}

// For each matrix in this test, one kernel is used for all numbers of rows. The kernel may have different variants for
// different numbers of rows.
TEST(WeightLinears, RowBitsDoNotDependOnTheRowCount) {
  if (!on_cuda()) GTEST_SKIP() << "this device computes all by one kernel";
  struct Case {
    std::int64_t in;
    std::int64_t out;
    std::vector<std::int64_t> rows;  // numbers of rows, in descending order
  };
  const std::vector<std::int64_t> few = {16, 9, 8, 2, 1};
  const std::vector<std::int64_t> dozens = {64, 33, 32, 17};
  for (const auto& [in, out, counts] : {Case{6912, 1152, few}, Case{3072, 1024, few}, Case{1152, 1536, few},
                                        Case{3072, 1024, dozens}, Case{4304, 1152, dozens}}) {
    HostTensor most;
    for (const std::int64_t rows : counts) {
      WeightLinear linear(DType::kBFloat16, {rows, in, out}, false);
      const Result<HostTensor> y = linear.run(true);
      ASSERT_TRUE(y.ok()) << y.status().to_string();
      if (rows == counts.front()) most = *y;
      const auto row_bytes = static_cast<std::size_t>(out) * sizeof(std::uint16_t);
      EXPECT_TRUE(std::equal(y->bytes.begin(), y->bytes.begin() + static_cast<std::ptrdiff_t>(rows * row_bytes),
                             most.bytes.begin()))
          << rows << " rows, k " << in << ", n " << out;
    }
  }
}

}  // namespace
}  // namespace tessera
