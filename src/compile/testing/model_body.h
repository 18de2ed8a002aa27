// Helpers for tests of passes and compilers. They build the graphs of the models in tests/data/goldens, and run the
// graph of a model's layers on a CPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/compile/value_memory_test_util.h"
#include "tessera/device/testing/environment.h"
#include "tessera/device/testing/fake_device.h"
#include "tessera/model/config/config.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/contract/op_plan.h"

namespace tessera::testing {

inline std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("goldens")))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline ModelGraphs build(const std::string& name, const ModelOptions& options) {
  const Result<ModelConfig> config = ModelConfig::read(data_path("goldens/" + name), built_in_families());
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  Result<ModelGraphs> graphs = build_model(*config, options, built_in_ops(), built_in_families());
  EXPECT_TRUE(graphs.ok()) << graphs.status().to_string();
  return *std::move(graphs);
}

// A forward of two requests with 3 and 4 tokens. Each request has one page.
class BodyRun {
 public:
  static constexpr std::int64_t kPageSize = 16;
  static constexpr std::int64_t kTokens = 7;

  // Runs the program of `body` and returns its output "hidden". Every call fills the inputs with the same data, so that
  // the results of two programs can be compared. The data of a weight depend on its type and on its place in the
  // graph's list of weights.
  std::vector<float> hidden(const ir::Graph& body, const Result<Program>& program) {
    plan(body);
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    ir::Bucket bucket = tokens(kTokens);
    for (std::size_t group = 0; group < ir::kMaxCacheGroups; ++group) bucket[ir::page_symbol(group)] = 3;
    ValueMemory values(*device_, *stream_, *program, bucket);
    fill(body, values);
    const auto scratch = device_->allocate(*program->workspace_bytes(bucket, *device_, context_), "workspace");
    const Result<BoundProgram> bound = program->bind(values.target(bucket, context_, (*scratch)->data()));
    EXPECT_TRUE(bound.ok()) << bound.status().to_string();
    EXPECT_TRUE(bound->enqueue(*stream_).ok());
    const std::vector<float> eager = values.read("hidden");
    EXPECT_EQ(replayed(*bound, body, values), eager) << "a graph of the same program";
    return eager;
  }

  Device& device() { return *device_; }

 private:
  void plan(const ir::Graph& body) {
    ForwardBatch batch;
    batch.query_lens = batch.kv_lens = {3, 4};
    CacheGroupBatch pages;
    pages.own({{PageId(1)}, {PageId(2)}});
    batch.groups.assign(body.cache_groups.size(), pages);
    plans_.clear();
    step_ = std::make_unique<StepBuffer>();
    context_.plans.clear();
    context_.limits = {.max_requests = 2, .max_tokens = kTokens, .max_pages_per_request = 1, .page_size = kPageSize};
    const ir::Graph* const graphs[] = {&body};
    const std::vector<PlannedOp> planned = find_planned_ops(graphs, cpu_kernels()).value();
    for (const PlannedOp& op : planned) {
      plans_.push_back(op.kernel->planner
                           ->make(*device_,
                                  {.nodes = op.nodes,
                                   .kernel = op.kernel->name,
                                   .group = op.group,
                                   .num_pages = 3,
                                   .limits = context_.limits},
                                  *step_)
                           .value());
      context_.plans.push_back({.op = op.op, .group = op.group, .plan = plans_.back().get()});
    }
    EXPECT_TRUE(step_->allocate(*device_, *stream_).ok());
    for (const std::unique_ptr<OpPlan>& plan : plans_)
      EXPECT_TRUE(plan->plan(batch, BatchKind::kExtend, 0, *stream_).ok());
    EXPECT_TRUE(step_->upload(*stream_).ok());
  }

  std::vector<float> replayed(const BoundProgram& bound, const ir::Graph& body, ValueMemory& values) {
    EXPECT_TRUE(stream_->begin_recording("body").ok());
    EXPECT_TRUE(bound.enqueue(*stream_).ok());
    const Result<std::unique_ptr<RecordedGraph>> graph = stream_->end_recording();
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    values.poison_results();
    fill(body, values);
    EXPECT_TRUE((*graph)->launch(*stream_).ok());
    return values.read("hidden");
  }

  static void write_integers(ValueMemory& values, const std::string& name, const std::vector<std::int32_t>& integers) {
    Bytes bytes(integers.size() * sizeof(std::int32_t));
    std::memcpy(bytes.data(), integers.data(), bytes.size());
    values.write_bytes(name, bytes);
  }

  static void fill(const ir::Graph& graph, ValueMemory& values) {
    std::uint64_t seed = 1;
    for (const ir::ValueId id : graph.weights) {
      const std::vector<std::int64_t> dims = *ir::evaluate(graph.value(id).type.shape, {});
      std::size_t bytes = sizeof(float);
      for (const std::int64_t dim : dims) bytes *= static_cast<std::size_t>(dim);
      Bytes content = random_bytes(ir::DType::kFloat32, bytes, ++seed);
      // Byte tensors hold packed weights or exponents of quantisation scales. The mask keeps the bytes in a range in
      // which no value becomes large.
      if (graph.value(id).type.dtype == ir::DType::kUInt8)
        for (std::byte& byte : content) byte = (byte & std::byte{7}) | std::byte{0x70};
      values.write_bytes(graph.value(id).name, content);
    }
    for (const ir::ValueId id : graph.inputs) {
      const std::string& name = graph.value(id).name;
      if (name == input_names::kInputIds) write_integers(values, name, {5, 9, 2, 7, 1, 3, 8});
      if (name == input_names::kInputRows || name == input_names::kEmbeddingRows)
        write_integers(values, name, std::vector<std::int32_t>(kTokens, -1));
      if (name == input_names::kPositions) write_integers(values, name, {0, 1, 2, 0, 1, 2, 3});
      if (name == input_names::kRopePositions)
        write_integers(values, name, {0, 1, 2, 0, 1, 1, 1, 0, 1, 2, 0, 1, 1, 2, 0, 1, 2, 0, 1, 2, 1});
    }
    for (const ir::CacheGroup& group : graph.cache_groups) {
      const bool one_slot = group.kind == ir::CacheGroup::Kind::kState;  // one slot for all tokens of a request
      write_integers(values, std::string(input_names::kSlots) + group.name,
                     one_slot ? std::vector<std::int32_t>{1, 1, 1, 2, 2, 2, 2}
                              : std::vector<std::int32_t>{16, 17, 18, 32, 33, 34, 35});
    }
  }

  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  std::unique_ptr<StepBuffer> step_;
  std::vector<std::unique_ptr<OpPlan>> plans_;
  ForwardContext context_;
};

}  // namespace tessera::testing
