// Runs calls of operators on the test device, for tests that compare a joined kernel (one kernel for several operators)
// with the operators' own kernels.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ops/contract/op_test_util.h"

namespace tessera::testing {

// Returns the kernels of the test device.
inline const KernelTable& test_kernels() { return **test_devices().kernels(test_device().properties().type); }

// A list of calls, in the order in which they run. Each operand, result and workspace has its own memory.
class DeviceCalls {
 public:
  struct Call {
    ir::Node node;
    std::vector<TensorView> operands;
    std::vector<TensorView> results;
    DeviceAddress workspace = {};
  };

  // Copies a tensor to the device.
  TensorView place(const HostTensor& tensor) {
    memory_.push_back(*test_device().allocate(tensor.bytes.size(), "test tensor"));
    EXPECT_TRUE(stream_->upload(memory_.back()->data(), tensor.bytes.data(), tensor.bytes.size()).ok());
    return tensor.view(memory_.back()->data());
  }
  TensorView weight(const HostTensor& tensor) {
    TensorView view = place(tensor);
    view.is_weight = true;
    return view;
  }
  // Adds a call, with memory for its results and for the workspace of its own kernel. The returned reference stays
  // valid.
  const Call& add(const ir::OpDecl& decl, std::vector<TensorView> operands, ir::Attributes attributes) {
    Call& call =
        calls_.emplace_back(Call{make_node(decl, operands.size(), std::move(attributes)), std::move(operands), {}, {}});
    std::vector<ir::Type> types;
    for (const TensorView& view : call.operands)
      types.push_back({view.dtype, ir::Shape(view.dims.begin(), view.dims.begin() + view.rank)});
    const std::vector<ir::Type> inferred = *decl.infer({types, call.node});
    for (const ir::Type& type : inferred)
      call.results.push_back(place(poisoned_tensor(type.dtype, *ir::evaluate(type.shape, {}))));
    const KernelDef* kernel = *test_kernels().get(call.node.op);
    const std::size_t bytes = kernel->workspace_bytes ? *kernel->workspace_bytes(args(call)) : 0;
    if (bytes > 0) {
      memory_.push_back(*test_device().allocate(bytes, "workspace"));
      call.workspace = memory_.back()->data();
    }
    return call;
  }
  const std::deque<Call>& all() const { return calls_; }

  BindArgs args(const Call& call) const {
    return {call.node, call.operands, call.results, call.workspace, test_device(), context_};
  }
  std::vector<BindArgs> args() const {
    std::vector<BindArgs> all;
    for (const Call& call : calls_) all.push_back(args(call));
    return all;
  }

  // Runs each call with the kernel of its own operator.
  Status run_each() {
    for (const Call& call : calls_) {
      const std::unique_ptr<BoundOp> op = TRY(TRY(test_kernels().get(call.node.op))->bind(args(call)));
      TRY(op->enqueue(*stream_));
      TRY(stream_->synchronize());
    }
    return ok_status();
  }
  // Fills all results with 0xff bytes.
  Status poison() {
    for (const Call& call : calls_)
      for (const TensorView& result : call.results)
        TRY(stream_->fill(result.data, 0xff, static_cast<std::size_t>(result.bytes())));
    return ok_status();
  }
  Result<HostTensor> download(const TensorView& view) {
    HostTensor t =
        poisoned_tensor(view.dtype, std::vector<std::int64_t>(view.dims.begin(), view.dims.begin() + view.rank));
    TRY(stream_->download(t.bytes.data(), view.data, t.bytes.size()));
    TRY(stream_->synchronize());
    return t;
  }
  Stream& stream() { return *stream_; }
  PlanLimits& limits() { return context_.limits; }  // the limits of all calls

 private:
  ForwardContext context_;
  std::vector<std::unique_ptr<Allocation>> memory_;
  std::unique_ptr<Stream> stream_ = *test_device().create_stream("test");
  std::deque<Call> calls_;
};

// Checks that a joined kernel's result has the same bits as in a second run (`again`), and is close to the result of
// the operators' own kernels.
inline void expect_joined(const HostTensor& actual, const HostTensor& again, const HostTensor& expected,
                          const std::string& name) {
  EXPECT_EQ(actual.bytes, again.bytes) << name << ": a second run gives other bits";
  // If sums are added in another order, a gate value may be rounded to a neighbouring number.
  Tolerance allowed = tolerance(actual.dtype, 4);
  allowed.absolute = actual.dtype == ir::DType::kBFloat16 ? 0.03 : 0.004;
  expect_close(actual, expected.values(), allowed, name);
}

}  // namespace tessera::testing
