// Helpers for tests of executables: operators that write to an operand, an environment with a device that can fail, and
// a reference run. The reference run executes the unsplit graph with separate memory for every value.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/compile/eager.h"
#include "tessera/compile/value_memory_test_util.h"
#include "tessera/device/testing/fake_device.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/linear/linear.h"
#include "tessera/ops/rows/elementwise.h"
#include "tessera/ops/rows/view.h"
#include "tessera/piecewise/executable.h"
#include "tessera/piecewise/splitter.h"

namespace tessera::testing {

// store(x, mut y) computes y = x. accumulate(x, mut y) computes y = y + x. matmul(x, w) computes x wᵀ and accumulates
// it in the result's memory, so the result is wrong if the plan gives it the memory of an operand.
namespace test_ops {
inline Result<std::vector<ir::Type>> no_result(const ir::OpSignature& s) {
  if (s.operands[0] != s.operands[1]) return invalid_argument("x and y must have one type");
  return std::vector<ir::Type>{};
}
template <bool kAdd>
Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const float* x = args.operands[0].as<float>();
  float* y = args.operands[1].as<float>();
  const std::int64_t n = args.operands[0].elements();
  return make_cpu_op(kAdd ? "accumulate" : "store", [=] {
    for (std::int64_t i = 0; i < n; ++i) y[i] = kAdd ? y[i] + x[i] : x[i];
  });
}
inline const ir::OpDecl kStore{.name = "store",
                               .summary = "y = x",
                               .operands = {{"x"}, {.name = "y", .mutated = true}},
                               .infer = no_result,
                               .split_by_default = true};
inline const ir::OpDecl kAccumulate{.name = "accumulate",
                                    .summary = "y = y + x",
                                    .operands = {{"x"}, {.name = "y", .mutated = true}},
                                    .infer = no_result};

inline Result<std::vector<ir::Type>> matmul_type(const ir::OpSignature& s) {
  return std::vector{ir::Type{s.operands[0].dtype, {s.operands[0].shape[0], s.operands[1].shape[0]}}};
}
inline Result<std::unique_ptr<BoundOp>> bind_matmul(const BindArgs& args) {
  const float* x = args.operands[0].as<float>();
  const float* w = args.operands[1].as<float>();
  float* y = args.results[0].as<float>();
  const std::int64_t rows = args.operands[0].dim(0);
  const std::int64_t inner = args.operands[0].dim(1);
  const std::int64_t cols = args.operands[1].dim(0);
  return make_cpu_op("matmul", [=] {
    std::fill(y, y + rows * cols, 0.0F);
    for (std::int64_t k = 0; k < inner; ++k)
      for (std::int64_t i = 0; i < rows * cols; ++i) y[i] += x[i / cols * inner + k] * w[i % cols * inner + k];
  });
}
inline const ir::OpDecl kMatmul{.name = "matmul", .summary = "x wᵀ", .operands = {{"x"}, {"w"}}, .infer = matmul_type};
}  // namespace test_ops

inline const ir::OpTable& bench_ops() {
  static const ir::OpTable table({&kAdd, &kMul, &kScale, &kCopy, &kReshape, &kSplit, &kEmptyLike, &kLinear,
                                  &test_ops::kStore, &test_ops::kAccumulate, &test_ops::kMatmul});
  return table;
}
inline const KernelTable& bench_kernels() {
  static const KernelTable table({kAddCpu,
                                  kMulCpu,
                                  kScaleCpu,
                                  kCopyCpu,
                                  kSplitCpu,
                                  kLinearCpu,
                                  {.op = "store", .name = "test", .bind = test_ops::bind<false>},
                                  {.op = "matmul", .name = "test", .bind = test_ops::bind_matmul},
                                  {.op = "accumulate", .name = "test", .bind = test_ops::bind<true>}});
  return table;
}

// The data that a forward left in memory. It contains the outputs, followed by the states.
using Outcome = std::vector<Bytes>;

class ExecutableBench {
 public:
  ExecutableBench(ir::Graph graph, std::int64_t largest_tokens)
      : graph_(std::move(graph)), largest_(tokens(largest_tokens)) {
    for (const ir::Value& value : graph_.values) {
      if (value.kind == ir::ValueKind::kResult) continue;
      const auto bytes = static_cast<std::size_t>(*ir::size_bytes(value.type, largest_));
      memory_.push_back(device_->allocate(bytes, value.name).value());
      externals_.add(value.name, memory_.back()->data());
    }
  }

  FakeDevice& device() { return *device_; }
  Stream& stream() { return *stream_; }
  Arena& arena() { return *arena_; }
  ExternalValues& externals() { return externals_; }
  DeviceAddress external(std::string_view name) const { return externals_.find(name, largest_); }
  const ir::Graph& graph() const { return graph_; }
  CompilerContext compiler_context() { return {.device = *device_, .ops = bench_ops(), .kernels = bench_kernels()}; }
  // Uses this compiler instead of the eager one from now on.
  void use_compiler(std::unique_ptr<Compiler> compiler) { compiler_ = std::move(compiler); }
  // Uses this compiler for buckets of up to `most` tokens. For larger buckets, the compiler of use_compiler() or the
  // eager compiler is used.
  void use_compiler_up_to(std::int64_t most, std::unique_ptr<Compiler> compiler) {
    small_compiler_ = std::move(compiler);
    most_ = most;
  }
  // Uses a device-specific backend, which must outlive the executables created with it.
  void use_backend(const PiecewiseBackend& backend) { backend_ = &backend; }

  Result<std::unique_ptr<Executable>> create(const std::vector<std::string>& split_ops, ExecutableOptions options = {},
                                             ArenaHistory* history = nullptr) {
    options.largest = largest_;
    const ExecutionEnvironment environment{.device = *device_,
                                           .stream = *stream_,
                                           .context = context_,
                                           .externals = externals_,
                                           .arena = *arena_,
                                           .workspace = *workspace_,
                                           .warm = warm_,
                                           .history = history,
                                           .backend = *backend_};
    std::optional<CompilerForSome> small;
    if (small_compiler_ != nullptr)
      small.emplace(CompilerForSome{.compiler = *small_compiler_, .serves = [most = most_](const ir::Bucket& bucket) {
                                      return bucket[ir::Symbol::kTokens] <= most;
                                    }});
    return Executable::create(TRY(split_graph(graph_, bench_ops(), split_ops)), *compiler_, environment,
                              std::move(options), std::move(small));
  }

  // Returns the data of a value. Inputs and states depend on `seed`. Weights are always the same.
  Bytes content(const ir::Value& value, std::uint64_t seed) const {
    const auto bytes = static_cast<std::size_t>(*ir::size_bytes(value.type, largest_));
    const std::uint64_t of_name = std::hash<std::string>()(value.name);
    return random_bytes(value.type.dtype, bytes, value.kind == ir::ValueKind::kWeight ? of_name : of_name + seed);
  }
  void load(std::uint64_t seed) {
    for (const ir::Value& value : graph_.values) {
      if (value.kind == ir::ValueKind::kResult) continue;
      const Bytes bytes = content(value, seed);
      EXPECT_TRUE(stream_->upload(external(value.name), bytes.data(), bytes.size()).ok());
    }
  }

  // Loads the data for `seed`, calls `forward`, and reads the outputs and states.
  Outcome outcome(const Executable& executable, std::int64_t size, std::uint64_t seed,
                  const std::function<Status(const ir::Bucket&)>& forward) {
    load(seed);
    const Status status = forward(tokens(size));
    EXPECT_TRUE(status.ok()) << status.to_string();
    Outcome left;
    if (!status.ok()) return left;
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Result<OutputView> view = executable.output(tokens(size), i);
      EXPECT_TRUE(view.ok()) << view.status().to_string();
      left.push_back(download(view->data, static_cast<std::size_t>(view->bytes())));
    }
    for (const ir::ValueId id : graph_.states) {
      const auto bytes = static_cast<std::size_t>(*ir::size_bytes(graph_.value(id).type, tokens(size)));
      left.push_back(download(external(graph_.value(id).name), bytes));
    }
    return left;
  }
  Outcome run(const Executable& executable, std::int64_t size, std::uint64_t seed) {
    return outcome(executable, size, seed, [&](const ir::Bucket& b) { return executable.run(b); });
  }
  Outcome replay(const Executable& executable, std::int64_t size, std::uint64_t seed) {
    return outcome(executable, size, seed, [&](const ir::Bucket& b) { return executable.replay(b); });
  }

  // Runs the graph as one program. The graph is not split, there is no memory plan, and every value has separate
  // memory.
  Outcome reference(std::int64_t size, std::uint64_t seed) {
    const ir::Bucket bucket = tokens(size);
    const Program program = *eager_program(graph_, bench_ops(), bench_kernels());
    ValueMemory values(*device_, *stream_, program, bucket);
    for (const ir::Value& value : graph_.values)
      if (value.kind != ir::ValueKind::kResult) values.write_bytes(value.name, content(value, seed));
    const std::size_t scratch = *program.workspace_bytes(bucket, *device_, context_);
    const std::unique_ptr<Allocation> workspace = device_->allocate(scratch, "workspace").value();
    const Status status = program.bind(values.target(bucket, context_, workspace->data()))->enqueue(*stream_);
    EXPECT_TRUE(status.ok()) << status.to_string();
    Outcome left;
    for (const ir::ValueId id : graph_.outputs) left.push_back(values.read_bytes(id.index()));
    for (const ir::ValueId id : graph_.states) left.push_back(values.read_bytes(id.index()));
    return left;
  }

  Bytes download(DeviceAddress from, std::size_t bytes) {
    Bytes to(bytes);
    EXPECT_TRUE(stream_->download(to.data(), from, bytes).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    return to;
  }

 private:
  ir::Graph graph_;
  ir::Bucket largest_;
  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
  std::unique_ptr<Compiler> compiler_ =
      make_eager_compiler({.device = *device_, .ops = bench_ops(), .kernels = bench_kernels()});
  std::unique_ptr<Compiler> small_compiler_;  // null if there is none
  std::int64_t most_ = 0;
  std::vector<std::unique_ptr<Allocation>> memory_;
  std::unique_ptr<Arena> arena_ = device_->create_arena({.reserve_bytes = 1 << 26, .name = "arena"}).value();
  std::unique_ptr<Arena> workspace_ = device_->create_arena({.reserve_bytes = 1 << 26, .name = "workspace"}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("main").value();
  ForwardContext context_;
  ExternalValues externals_;
  KernelVariants warm_;
  const PiecewiseBackend* backend_ = &recording_backend();
};

// A graph with two cuts. A residual and an output that is made early are live across both cuts. One split op writes to
// an operand. The graph has a state.
inline constexpr const char* kTwoCuts = R"(graph @two_cuts {
  input %x: f32[T, 8]
  weight %w1: f32[8, 8]
  weight %w2: f32[16, 8]
  weight %w3: f32[8, 16]
  state %s: f32[T, 8]
  %a: f32[T, 8] = linear(%x, %w1)
  %r: f32[T, 8] = add(%a, %x)
  %out1: f32[T, 8] = empty_like(%r)
  store(%a, mut %out1)
  %b: f32[T, 16] = matmul(%out1, %w2)
  %early: f32[T, 16] = scale(%b) {factor = 0.5}
  %c: f32[T, 8] = matmul(%b, %w3)
  %out2: f32[T, 8] = empty_like(%c)
  store(%c, mut %out2)
  accumulate(%r, mut %s)
  %d: f32[T, 8] = add(%out2, %r)
  %e: f32[T, 8] = linear(%d, %w1)
  return %e, %early
})";
inline const std::vector<std::string> kCuts = {"store"};

inline ExecutableBench two_cuts(std::int64_t largest = 24) {
  return ExecutableBench(parse(kTwoCuts, bench_ops()), largest);
}

}  // namespace tessera::testing
