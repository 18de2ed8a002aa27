// A piece made executable.
//
//   Program       kernel steps over the piece's values; sizes still free
//   BoundProgram  the same for one bucket: every address, grid and matmul algorithm decided
//
// BoundProgram::enqueue() runs the piece now, or, while the stream records, into a graph: eager,
// warm-up and capture are the same calls.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/op.h"

namespace tessera {

// Where and for which sizes a program is bound.
struct BindTarget {
  const ir::Bucket& bucket;
  std::span<std::byte* const> addresses;  // [graph.values.size()]: of each value
  std::byte* workspace = nullptr;         // at least Program::workspace_bytes(bucket) bytes
  Device& device;
  const ForwardContext& context;  // outlives the bound program
};

class BoundProgram {
 public:
  struct Step {
    std::unique_ptr<BoundOp> op;
    ir::NodeId node;
  };
  BoundProgram(const ir::Graph& graph, std::vector<Step> steps) : graph_(&graph), steps_(std::move(steps)) {}

  // Asynchronous on `stream`; an error names the operator and its result.
  Status enqueue(Stream& stream) const;
  // One step of it. Precondition: step < num_kernels().
  Status enqueue_step(std::size_t step, Stream& stream) const;
  std::span<const Step> steps() const { return steps_; }
  std::int64_t num_kernels() const { return static_cast<std::int64_t>(steps_.size()); }

 private:
  const ir::Graph* graph_;  // the Program's, which outlives this
  std::vector<Step> steps_;
};

class Program {
 public:
  struct Step {
    const KernelDef* kernel = nullptr;  // of the kernel table, which outlives the program
    ir::NodeId node;
  };
  Program(ir::Graph graph, std::vector<Step> steps)
      : graph_(std::make_unique<ir::Graph>(std::move(graph))), steps_(std::move(steps)) {}

  const ir::Graph& graph() const { return *graph_; }
  std::span<const Step> steps() const { return steps_; }

  // Scratch that any step needs for the bucket; steps run one after another and share it.
  Result<std::size_t> workspace_bytes(const ir::Bucket& bucket, Device& device, const ForwardContext& context) const;
  Result<BoundProgram> bind(const BindTarget& target) const;

 private:
  std::unique_ptr<ir::Graph> graph_;  // behind a pointer, so that bound programs survive a move
  std::vector<Step> steps_;
};

// A value of `type` at `data`, with the bucket's numbers.
Result<TensorView> make_view(const ir::Type& type, const ir::Bucket& bucket, std::byte* data);

}  // namespace tessera
