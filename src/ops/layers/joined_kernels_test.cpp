// Catches: a joined kernel whose results differ from those of its operators for some number of rows, some number of
// columns past the last whole tile, some type or some attribute; results that change from run to run; kernels that
// begin before the preceding kernel has ended and do not wait for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/layers/decoder_layer_region.h"
#include "tessera/ops/quantised/quantised_test_util.h"
#include "tessera/ops/testing/device_calls.h"

namespace tessera {
namespace {

using ir::DType;
using testing::DeviceCalls;
using testing::HostTensor;
using testing::on_cuda;
using testing::random_tensor;
using testing::test_device;
using testing::test_kernels;

struct Size {
  std::int64_t rows;
  std::int64_t in;   // number of inputs of the linear
  std::int64_t out;  // number of outputs of the linear
};

// A chain of operators on the device. Each operator has its own tensors.
class Chain {
 public:
  Chain(const JoinedKernelDef& joined, DType dtype, Size size, bool bias, const QuantisedFormat& format) {
    std::uint32_t seed = 1;
    const auto tensor = [&](std::vector<std::int64_t> dims, double most) {
      return random_tensor(dtype, std::move(dims), seed++, -most, most);
    };
    TensorView input = calls_.place(tensor({size.rows, size.in}, 1));
    for (std::size_t i = 0; i < joined.num_ops(); ++i) {
      const ir::OpDecl& decl = **built_in_ops().get(joined.ops[i]);
      std::vector<TensorView> operands{input};
      const std::int64_t width = input.cols();
      ir::Attributes attributes;
      if (decl.name == "add_rms_norm") operands.push_back(calls_.place(tensor({size.rows, width}, 1)));
      if (decl.name == "rms_norm" || decl.name == "add_rms_norm") {
        operands.push_back(calls_.weight(tensor({width}, 1)));
        attributes = {{"eps", 1e-6}, {bias ? "unit_offset" : "round_once", true}};
      } else if (decl.name == "linear") {
        operands.push_back(calls_.weight(tensor({size.out, width}, 0.1)));
        if (bias) operands.push_back(calls_.weight(tensor({size.out}, 1)));
        attributes = {{"bias", bias}};
      } else if (decl.name == "quantised_linear") {
        for (const HostTensor& part : testing::random_quantised(format, size.out, width, seed++, false).operands)
          operands.push_back(calls_.weight(part));
        if (bias) operands.push_back(calls_.weight(tensor({size.out}, 1)));
        attributes = format.attributes();
        attributes.emplace_back("bias", bias);
        if (format.values == QuantisedFormat::Values::kE4M3) attributes.emplace_back("inputs", std::string("group"));
      } else if (decl.name == "gated_norm") {
        const std::int64_t column = bias ? 64 : 0;
        operands.push_back(calls_.place(tensor({size.rows, width + column}, 1)));
        operands.push_back(calls_.weight(random_tensor(DType::kFloat32, {width % 128 == 0 ? 128 : 8}, seed++, -1, 1)));
        attributes = {{"eps", 1e-6}, {"column", column}};
      } else if (decl.name == "sigmoid_gate") {
        operands.push_back(calls_.place(tensor({size.rows, width}, 1)));
      } else if (decl.name == "gelu_mul" || decl.name == "gelu") {
        attributes = {{"tanh", bias}};
      }
      input = calls_.add(decl, std::move(operands), std::move(attributes)).results[0];
    }
  }

  // Both functions return the results that a joined kernel writes. run_each() runs each operator's own kernel.
  // run_joined() runs the joined kernel, and returns nothing if that kernel does not support the case.
  Result<std::vector<HostTensor>> run_each() {
    TRY(calls_.run_each());
    return written_results();
  }
  Result<std::optional<std::vector<HostTensor>>> run_joined(const JoinedKernelDef& joined) {
    TRY(calls_.poison());
    const std::unique_ptr<BoundOp> op = TRY(joined.bind(calls_.args()));
    if (op == nullptr) return std::optional<std::vector<HostTensor>>();
    TRY(op->enqueue(calls_.stream()));
    return std::optional(TRY(written_results()));
  }

 private:
  // Downloads the results that a joined kernel writes: all results of the last operator, and all but the first result
  // of every other operator. A joined kernel does not write that first result, because only the next operator reads it.
  Result<std::vector<HostTensor>> written_results() {
    std::vector<HostTensor> results;
    for (const DeviceCalls::Call& call : calls_.all())
      for (std::size_t i = &call == &calls_.all().back() ? 0 : 1; i < call.results.size(); ++i)
        results.push_back(TRY(calls_.download(call.results[i])));
    return results;
  }

  DeviceCalls calls_;
};

// Returns the formats to test. The formats differ in the place at which the kernels apply the scales. If another
// operator comes before quantised_linear, the function returns only formats whose kernels read converted rows
// (converted_rows.cuh). If there is no quantised_linear, the format does not matter.
std::vector<QuantisedFormat> formats_of(const JoinedKernelDef& joined) {
  using Values = QuantisedFormat::Values;
  const QuantisedFormat blocks{.values = Values::kE4M3, .group_rows = 128, .group_cols = 128};
  if (!joined.replaces("quantised_linear")) return {blocks};
  const QuantisedFormat fixed_point{.values = Values::kInt4, .group_rows = 1, .group_cols = 128, .zeros = true};
  if (joined.ops[0] != "quantised_linear") return {blocks, fixed_point};
  return {blocks,
          fixed_point,
          {.values = Values::kInt4, .group_rows = 1, .group_cols = 32, .zeros = true},
          {.values = Values::kE2M1,
           .scales = QuantisedFormat::Scales::kE4M3,
           .group_rows = 1,
           .group_cols = kNvfp4Group,
           .factor = true}};
}

// Returns the sizes to test. The last two sizes lead to persistent_tiles(), which products of FP8 do not use.
std::vector<Size> sizes_of(const QuantisedFormat& format) {
  std::vector<Size> sizes{{1, 256, 32},      {2, 1024, 64},       {3, 1280, 96},      {5, 4096, 32},
                          {8, 2048, 4096},   {5, 2064, 4112},     {9, 1024, 64},      {16, 1024, 6144},
                          {4, 4096, 512},    {1, 8192, 128},      {1, 1152, 64},      {7, 32, 32},
                          {3, 2880, 96},     {11, 1056, 64},      {17, 1024, 64},     {24, 3072, 512},
                          {31, 1120, 96},    {32, 1024, 6144},    {48, 1152, 4304},   {64, 200, 6160},
                          {120, 1152, 4304}, {10, 4096, 28672},   {1024, 256, 28672}, {1101, 1152, 12288},
                          {2001, 72, 6160},  {1037, 2048, 13824}, {2200, 4096, 2048}, {4099, 1024, 4104},
                          {8200, 512, 4096}, {132, 1024, 512},    {1000, 2048, 2048}, {96, 3072, 512}};
  if (format.values != QuantisedFormat::Values::kE4M3)
    sizes.insert(sizes.end(), {{700, 256, 11392}, {701, 256, 11392}});
  return sizes;
}

// The maximum number of values of a quantised matrix, and of the product's results. The test makes and compares values
// one by one, which is slow.
constexpr std::int64_t kMostQuantised = std::int64_t{9} << 20;

std::string name_of(const JoinedKernelDef& joined) {
  std::string name;
  for (std::size_t i = 0; i < joined.num_ops(); ++i) name += (i > 0 ? " + " : "") + std::string(joined.ops[i]);
  return name;
}

// Compares a joined kernel with its operators at all sizes that it supports.
void check_joined(const JoinedKernelDef& joined) {
  int served = 0;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (const QuantisedFormat& format : formats_of(joined))
      for (const Size size : sizes_of(format)) {
        if (size.rows > joined.most_rows) continue;
        if (joined.replaces("quantised_linear") && std::max(size.in, size.rows) * size.out > kMostQuantised) continue;
        const bool bias = size.rows % 2 == 1;
        Chain chain(joined, dtype, size, bias, format);
        const Result<std::optional<std::vector<HostTensor>>> actual = chain.run_joined(joined);
        ASSERT_TRUE(actual.ok()) << actual.status().to_string();
        if (!actual->has_value()) continue;
        ++served;
        const Result<std::optional<std::vector<HostTensor>>> again = chain.run_joined(joined);
        const Result<std::vector<HostTensor>> expected = chain.run_each();
        ASSERT_TRUE(expected.ok()) << expected.status().to_string();
        for (std::size_t i = 0; i < expected->size(); ++i)
          testing::expect_joined((**actual)[i], (**again)[i], (*expected)[i],
                                 name_of(joined) + " of " + std::to_string(size.rows) + " rows, k " +
                                     std::to_string(size.in) + ", n " + std::to_string(size.out));
      }
  EXPECT_GT(served, 4) << name_of(joined);
  // cuBLASLt has only the tanh form of GELU, and this test uses that form only for odd numbers of rows. So the joined
  // kernel supports only the cases with an odd number of rows.
  if (joined.ops[1] == "gelu") {
    EXPECT_EQ(served, 8);
  }
}

// The number of tests. Each test checks one part of the kernels, so that several processes can share the work.
constexpr int kParts = 16;
class JoinedKernelsPart : public ::testing::TestWithParam<int> {};

TEST_P(JoinedKernelsPart, EqualsItsOperators) {
  if (test_kernels().joined().empty()) GTEST_SKIP() << "this device has no joined kernels";
  int part = 0;
  for (const JoinedKernelDef& joined : test_kernels().joined()) {
    if (joined.region != nullptr) continue;       // tested in runner/decoder_layers_test.cpp
    if (joined.ops[0] == "all_reduce") continue;  // tested in collective_ranks_test.cpp
    if (joined.replaces("adapter_add") || joined.replaces("adapter_shrink")) continue;  // adapted_linear_test.cpp
    if (part++ % kParts == GetParam()) check_joined(joined);
  }
}
INSTANTIATE_TEST_SUITE_P(All, JoinedKernelsPart, ::testing::Range(0, kParts));

// Launches a chain of short products, each of which reads the preceding result. A kernel that did not wait for the
// preceding kernel would read that kernel's result too early, and the last result of the chain would change. At these
// sizes the kernels need no workspace.
void check_dependent_launches(std::int64_t rows, std::int64_t width) {
  constexpr int kLaunches = 64;
  const KernelDef& linear = **test_kernels().get("linear");
  Device& device = test_device();
  const std::unique_ptr<Stream> stream = *device.create_stream("test");
  std::vector<std::unique_ptr<Allocation>> memory;
  const auto place = [&](const HostTensor& tensor) {
    memory.push_back(*device.allocate(tensor.bytes.size(), "test tensor"));
    EXPECT_TRUE(stream->upload(memory.back()->data(), tensor.bytes.data(), tensor.bytes.size()).ok());
    return tensor.view(memory.back()->data());
  };
  const double most = 2 / std::sqrt(static_cast<double>(width));  // keeps the values of the whole chain near 1
  TensorView w = place(random_tensor(DType::kBFloat16, {width, width}, 1, -most, most));
  w.is_weight = true;
  const HostTensor x = random_tensor(DType::kBFloat16, {rows, width}, 2);
  std::vector<TensorView> values{place(x)};
  for (int i = 0; i < kLaunches; ++i)
    values.push_back(place(testing::poisoned_tensor(DType::kBFloat16, {rows, width})));
  const ir::Node node = testing::make_node(**built_in_ops().get("linear"), 2, {});
  const ForwardContext context;
  std::vector<std::unique_ptr<BoundOp>> ops;
  for (int i = 0; i < kLaunches; ++i) {
    const std::vector<TensorView> operands{values[static_cast<std::size_t>(i)], w};
    const std::vector<TensorView> results{values[static_cast<std::size_t>(i) + 1]};
    ops.push_back(*linear.bind({node, operands, results, {}, device, context}));
  }
  const auto last = [&](bool one_by_one) {
    HostTensor y = testing::poisoned_tensor(DType::kBFloat16, {rows, width});
    for (int i = 1; i <= kLaunches; ++i)
      EXPECT_TRUE(stream->fill(values[static_cast<std::size_t>(i)].data, 0xff, y.bytes.size()).ok());
    for (const std::unique_ptr<BoundOp>& op : ops) {
      EXPECT_TRUE(op->enqueue(*stream).ok());
      if (one_by_one) {
        EXPECT_TRUE(stream->synchronize().ok());
      }
    }
    EXPECT_TRUE(stream->download(y.bytes.data(), values.back().data, y.bytes.size()).ok());
    EXPECT_TRUE(stream->synchronize().ok());
    return y;
  };
  const HostTensor expected = last(true);
  EXPECT_FALSE(std::isnan(expected.at(0)));
  for (int run = 0; run < 20; ++run) ASSERT_EQ(last(false).bytes, expected.bytes) << "run " << run;
}

TEST(JoinedKernels, DependentLaunchesWaitForOneAnother) {
  if (!on_cuda()) GTEST_SKIP() << "launches of this device do not overlap";
  check_dependent_launches(8, 1024);
  check_dependent_launches(16, 2048);
  check_dependent_launches(32, 1024);
  check_dependent_launches(32, 2048);
  check_dependent_launches(48, 4096);
}

}  // namespace
}  // namespace tessera
