// Helpers for operators' tests. They run one operator on a device, so that a test can compare the results with a
// double-precision reference (ir/testing/host_tensor.h). TESSERA_TEST_DEVICE=cuda runs the same tests on the CUDA
// kernels.
//
//   const HostTensor x = random_tensor(DType::kBFloat16, {7, 64}, /*seed=*/1);
//   const OpOutcome out = run_op(kSiluMul, kSiluMulCpu, {x});
//   expect_close(out.results[0], reference(x), tolerance(DType::kBFloat16), "silu_mul");
//
// run_op runs the kernel twice: eagerly, and by a graph that was recorded while the same addresses held other contents.
// Both results must agree to the bit. The memory that the kernel has to write is filled with NaN before each run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/ir/builder.h"
#include "tessera/ir/testing/host_tensor.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/device_registry.h"

namespace tessera::testing {

// Makes a node as a graph would hold it: attributes sorted, mutated operands marked.
inline ir::Node make_node(const ir::OpDecl& decl, std::size_t operands, ir::Attributes attributes) {
  ir::Node node;
  node.op = std::string(decl.name);
  for (std::size_t i = 0; i < operands; ++i) {
    node.operands.emplace_back(static_cast<std::int32_t>(i));
    node.mutates.push_back(decl.operands[i].mutated);
  }
  std::sort(attributes.begin(), attributes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  node.attributes = std::move(attributes);
  return node;
}

// Runs only the shape rule: returns the result types, or the rule's error.
inline Result<std::vector<ir::Type>> infer_types(const ir::OpDecl& decl, const std::vector<ir::Type>& operands,
                                                 ir::Attributes attributes = {}) {
  const ir::Node node = make_node(decl, operands.size(), std::move(attributes));
  return decl.infer({operands, node});
}
// Returns the message of the shape rule's error, or "" if the rule accepts the operands.
inline std::string infer_error(const ir::OpDecl& decl, const std::vector<ir::Type>& operands,
                               ir::Attributes attributes = {}) {
  return infer_types(decl, operands, std::move(attributes)).status().message();
}

// Returns the registry of the built-in devices. The whole process uses this one registry.
inline const DeviceRegistry& test_devices() {
  static const DeviceRegistry devices = built_in_devices();
  return devices;
}

// Returns the process's device under test: the CPU, or the device that TESSERA_TEST_DEVICE names.
inline Device& test_device() {
  static const std::unique_ptr<Device> device = [] {
    Result<std::unique_ptr<Device>> opened = test_devices().open(test_device_name());
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.status().to_string().c_str());
      std::exit(1);
    }
    return std::move(opened).value();
  }();
  return *device;
}
inline bool on_cuda() { return test_device().properties().type == "cuda"; }

// Returns the kernel that the device under test has for the operator of `cpu_kernel`.
inline Result<const KernelDef*> kernel_under_test(const KernelDef& cpu_kernel) {
  if (!on_cuda()) return &cpu_kernel;
  return TRY(test_devices().kernels("cuda"))->get(cpu_kernel.op);
}

// An operator that is bound to its own memory on a device, for tests that run it more than once.
class OpCase {
 public:
  // Binds the operator. `context` and `kernel` must outlive the case.
  static Result<std::unique_ptr<OpCase>> create(Device& device, const ir::OpDecl& decl, const KernelDef& kernel,
                                                const std::vector<HostTensor>& operands, ir::Attributes attributes,
                                                const ForwardContext& context) {
    std::unique_ptr<OpCase> c(new OpCase);
    c->stream_ = TRY(device.create_stream("test"));
    const ir::Node node = make_node(decl, operands.size(), std::move(attributes));
    std::vector<ir::Type> types;
    for (const HostTensor& t : operands) types.push_back(t.type());
    c->operands_ = operands;
    for (const ir::Type& type : TRY(decl.infer({types, node})))
      c->results_.push_back(poisoned_tensor(type.dtype, TRY(ir::evaluate(type.shape, {}))));

    std::vector<TensorView> operand_views;
    std::vector<TensorView> result_views;
    for (const HostTensor& t : c->operands_) operand_views.push_back(TRY(c->place(device, t)));
    for (const HostTensor& t : c->results_) result_views.push_back(TRY(c->place(device, t)));
    BindArgs args{node, operand_views, result_views, {}, device, context};
    if (kernel.workspace_bytes) {
      const std::size_t bytes = TRY(kernel.workspace_bytes(args));
      c->memory_.push_back(TRY(device.allocate(bytes, "workspace")));
      args.workspace = c->memory_.back()->data();
    }
    c->bound_ = TRY(kernel.bind(args));
    return c;
  }

  // Writes the operands' contents to the device and fills the results with 0xff bytes.
  Status load(const std::vector<HostTensor>& operands) {
    for (std::size_t i = 0; i < operands.size(); ++i) TRY(upload(i, operands[i]));
    for (std::size_t i = 0; i < results_.size(); ++i)
      TRY(upload(operands_.size() + i, poisoned_tensor(results_[i].dtype, results_[i].dims)));
    return ok_status();
  }
  Status enqueue() { return bound_->enqueue(*stream_); }
  Status record() {
    TRY(stream_->begin_recording("test"));
    TRY(bound_->enqueue(*stream_));
    graph_ = TRY(stream_->end_recording());
    return ok_status();
  }
  Status replay() { return graph_->launch(*stream_); }
  std::int64_t recorded_nodes() const { return graph_->stats().nodes; }
  // Reads the operands' current contents.
  Result<std::vector<HostTensor>> operands() { return fetch(operands_, 0); }
  Result<HostTensor> operand(std::size_t i) { return std::move(TRY(fetch({operands_[i]}, i)).front()); }
  Result<std::vector<HostTensor>> results() { return fetch(results_, operands_.size()); }
  Stream& stream() { return *stream_; }

 private:
  OpCase() = default;
  Result<TensorView> place(Device& device, const HostTensor& t) {
    memory_.push_back(TRY(device.allocate(t.bytes.size(), "test tensor")));
    return t.view(memory_.back()->data());
  }
  Status upload(std::size_t i, const HostTensor& t) {
    return stream_->upload(memory_[i]->data(), t.bytes.data(), t.bytes.size());
  }
  Result<std::vector<HostTensor>> fetch(std::vector<HostTensor> tensors, std::size_t first) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      TRY(stream_->download(tensors[i].bytes.data(), memory_[first + i]->data(), tensors[i].bytes.size()));
    TRY(stream_->synchronize());
    return tensors;
  }

  // Members are destroyed in reverse order: graph, kernel, stream, memory.
  std::vector<std::unique_ptr<Allocation>> memory_;  // operands, results, workspace
  std::vector<HostTensor> operands_;
  std::vector<HostTensor> results_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<BoundOp> bound_;
  std::unique_ptr<RecordedGraph> graph_;
};

struct OpOutcome {
  std::vector<HostTensor> results;
  std::vector<HostTensor> operands;  // after the run, with what the kernel wrote to mutated operands
};

inline Result<OpOutcome> try_run_op(const ir::OpDecl& decl, const KernelDef& kernel,
                                    const std::vector<HostTensor>& operands, ir::Attributes attributes = {},
                                    const ForwardContext& context = {}) {
  const KernelDef* tested = TRY(kernel_under_test(kernel));
  std::unique_ptr<OpCase> c =
      TRY(OpCase::create(test_device(), decl, *tested, operands, std::move(attributes), context));
  std::vector<HostTensor> others = operands;
  for (HostTensor& t : others) std::fill(t.bytes.begin(), t.bytes.end(), std::byte{0});
  TRY(c->load(others));
  TRY(c->record());
  TRY(c->load(operands));
  TRY(c->replay());
  OpOutcome replayed;
  replayed.results = TRY(c->results());
  replayed.operands = TRY(c->operands());
  TRY(c->load(operands));
  TRY(c->enqueue());
  OpOutcome eager;
  eager.results = TRY(c->results());
  eager.operands = TRY(c->operands());
  for (std::size_t i = 0; i < eager.results.size(); ++i)
    EXPECT_TRUE(same_bits(eager.results[i], replayed.results[i]))
        << decl.name << ": eager and replayed result " << i << " differ";
  for (std::size_t i = 0; i < eager.operands.size(); ++i) {
    EXPECT_TRUE(same_bits(eager.operands[i], replayed.operands[i]))
        << decl.name << ": eager and replayed operand " << i << " differ";
    if (decl.operands[i].mutated) continue;
    EXPECT_TRUE(same_bits(eager.operands[i], operands[i])) << decl.name << " changed operand " << i;
  }
  return eager;
}

// Like try_run_op(), except that an error fails the test, and the results are then empty.
inline OpOutcome run_op(const ir::OpDecl& decl, const KernelDef& kernel, const std::vector<HostTensor>& operands,
                        ir::Attributes attributes = {}, const ForwardContext& context = {}) {
  Result<OpOutcome> outcome = try_run_op(decl, kernel, operands, std::move(attributes), context);
  if (outcome.ok()) return *std::move(outcome);
  ADD_FAILURE() << decl.name << ": " << outcome.status().to_string();
  return {std::vector<HostTensor>(4), operands};
}

}  // namespace tessera::testing
