// Helpers for tests of runners. They load a small checkpoint on a device that can fail, make batches of requests with
// cached prefixes, and compute logits.
//
//   RunnerBench bench = make_bench("llama", small_options());
//   ASSERT_TRUE(bench.runner->capture().ok());
//   std::vector<float> logits = bench.logits({{.ids = ids(9), .computed = 0}});
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/testing/paths.h"
#include "tessera/device/testing/fake_device.h"
#include "tessera/model/family.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/piecewise/split_ops.h"
#include "tessera/runner/model_runner.h"
#include "tessera/runner/wanted_rows.h"

namespace tessera::testing {

inline constexpr std::int64_t kTestPageSize = 8;
inline constexpr std::int64_t kTestContext = 64;
inline constexpr std::int64_t kPagesPerRequest = kTestContext / kTestPageSize;

inline RunnerOptions small_options() {
  RunnerOptions options;
  options.prefill_sizes = {4, 16, 40};
  options.decode_sizes = {1, 2, 4};
  options.split_ops = default_split_ops(built_in_ops());
  options.max_tokens = 48;
  options.max_requests = 4;
  options.context_length = kTestContext;
  options.page_size = kTestPageSize;
  options.num_pages = {4 * kPagesPerRequest + 1};
  return options;
}

// The token ids of a request. The keys and values of the first `computed` tokens are already in the KV cache.
struct TestRequest {
  std::vector<std::int32_t> ids;
  std::int64_t computed = 0;
};

inline std::vector<std::int32_t> ids(std::int64_t count, std::int32_t seed = 1) {
  std::vector<std::int32_t> made;
  for (std::int32_t i = 0; i < count; ++i) made.push_back((seed * 97 + i * 31 + i * i) % 500);
  return made;
}

enum class Rows { kNone, kLast, kAll };

// Makes a batch in which request b owns the pages 1 + 8b … 8 + 8b.
inline ForwardBatch make_batch(const std::vector<TestRequest>& requests, Rows rows, std::size_t groups = 1) {
  ForwardBatch batch;
  CacheGroupBatch group;
  std::vector<std::vector<PageId>> tables;
  for (std::size_t b = 0; b < requests.size(); ++b) {
    const TestRequest& request = requests[b];
    const auto length = static_cast<std::int64_t>(request.ids.size());
    std::vector<PageId> pages;
    for (std::int64_t p = 0; p * kTestPageSize < length; ++p)
      pages.emplace_back(static_cast<std::int32_t>(1 + static_cast<std::int64_t>(b) * kPagesPerRequest + p));
    for (std::int64_t position = request.computed; position < length; ++position) {
      if (rows == Rows::kAll || (rows == Rows::kLast && position + 1 == length))
        batch.wanted_rows.push_back(static_cast<std::int32_t>(batch.input_ids.size()));
      batch.input_ids.emplace_back(request.ids[static_cast<std::size_t>(position)]);
      batch.input_rows.push_back(-1);
      batch.positions.push_back(static_cast<std::int32_t>(position));
      const PageId page = pages[static_cast<std::size_t>(position / kTestPageSize)];
      group.slots.emplace_back(static_cast<std::int32_t>(page.value() * kTestPageSize + position % kTestPageSize));
    }
    batch.query_lens.push_back(static_cast<std::int32_t>(length - request.computed));
    batch.kv_lens.push_back(static_cast<std::int32_t>(length));
    tables.push_back(std::move(pages));
  }
  group.own(std::move(tables));
  batch.groups.assign(groups, group);
  return batch;
}

struct RunnerBench {
  std::unique_ptr<FakeDevice> device;
  std::unique_ptr<ModelRunner> runner;

  RunnerBench() = default;
  RunnerBench(RunnerBench&&) = default;
  RunnerBench& operator=(RunnerBench&& other) noexcept {
    runner = std::move(other.runner);  // the runner is destroyed before its device
    device = std::move(other.device);
    return *this;
  }

  Result<ForwardOutputs> forward(const ForwardBatch& batch, std::vector<float>& logits, bool force_eager = false) {
    logits.assign(batch.wanted_rows.size() * static_cast<std::size_t>(runner->vocab_size()), NAN);
    return runner->forward({.batch = batch, .sampling = {}, .logits = logits, .force_eager = force_eager});
  }
  // Returns the logits of the wanted rows. If `decision` is not null, sets it to dispatch's decision.
  std::vector<float> logits(const std::vector<TestRequest>& requests, Rows rows = Rows::kAll, bool force_eager = false,
                            Decision* decision = nullptr) {
    std::vector<float> made;
    const Result<ForwardOutputs> outputs = forward(make_batch(requests, rows), made, force_eager);
    EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
    if (outputs.ok() && decision != nullptr) *decision = outputs->decision;
    return made;
  }
  // Like logits(), but each request must have exactly one new token. Its id is read from the device: request r gets the
  // id that row r of the previous forward sampled.
  std::vector<float> logits_from_rows(const std::vector<TestRequest>& requests) {
    ForwardBatch batch = make_batch(requests, Rows::kAll);
    std::iota(batch.input_rows.begin(), batch.input_rows.end(), 0);
    std::fill(batch.input_ids.begin(), batch.input_ids.end(), TokenId(0));
    std::vector<float> made;
    const Status status = forward(batch, made).status();
    EXPECT_TRUE(status.ok()) << status.to_string();
    return made;
  }
};

// The rows that the last layer computes in a prompt: all rows, or only the wanted rows (wanted_rows.h).
enum class LastLayer : std::uint8_t { kOfAllRows, kOfWantedRows };

inline Result<RunnerBench> try_make_bench(const std::string& golden, RunnerOptions options,
                                          ir::DType dtype = ir::DType::kFloat32, FaultPlan faults = {},
                                          LastLayer last = LastLayer::kOfAllRows) {
  const std::string folder = testing::data_path("goldens/" + golden);
  const ModelConfig config = TRY(ModelConfig::read(folder, built_in_families()));
  ModelGraphs graphs = TRY(build_model(config,
                                       {.dtype = dtype,
                                        .page_size = options.page_size,
                                        .max_requests = options.max_requests,
                                        .max_drafts = options.max_drafts},
                                       built_in_ops(), built_in_families()));
  options.num_pages.resize(graphs.body.cache_groups.size(), options.num_pages.front());
  RunnerBench bench;
  bench.device = TRY(FakeDevice::create(faults, {.threads = 1}));
  if (last == LastLayer::kOfWantedRows)
    graphs.prefill = TRY(end_with_wanted_rows(graphs.body, graphs.head, built_in_ops(), cpu_kernels()));
  Weights weights =
      TRY(Weights::load(graphs.weights, checkpoint_source(TRY(Checkpoint::open(folder))), *bench.device, false));
  bench.runner = TRY(ModelRunner::create(std::move(graphs), std::move(weights), *bench.device, std::move(options)));
  return bench;
}
inline RunnerBench make_bench(const std::string& golden, RunnerOptions options, ir::DType dtype = ir::DType::kFloat32,
                              LastLayer last = LastLayer::kOfAllRows) {
  Result<RunnerBench> bench = try_make_bench(golden, std::move(options), dtype, {}, last);
  EXPECT_TRUE(bench.ok()) << bench.status().to_string();
  return bench.ok() ? *std::move(bench) : RunnerBench{};
}
inline RunnerBench make_captured(const std::string& golden, RunnerOptions options,
                                 ir::DType dtype = ir::DType::kFloat32, LastLayer last = LastLayer::kOfAllRows) {
  RunnerBench bench = make_bench(golden, std::move(options), dtype, last);
  const Status status = bench.runner->capture();
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bench;
}

// Returns the CPU's kernels with a silu_mul that copies baked_number into its launch. A graph therefore keeps the value
// that baked_number had during the capture.
inline float baked_number = 0;
inline KernelTable baking_kernels() {
  class BakesHostData final : public BoundOp {
   public:
    explicit BakesHostData(const TensorView& y) : y_(y) {}
    Status enqueue(Stream& stream) const override {
      return static_cast<CpuStream&>(stream).launch(
          "bakes host data", [y = y_, number = baked_number] { std::fill_n(y.as<float>(), y.elements(), number); });
    }

   private:
    TensorView y_;
  };
  return cpu_kernels().with(
      {.op = "silu_mul", .name = "test", .bind = [](const BindArgs& args) -> Result<std::unique_ptr<BoundOp>> {
         return std::make_unique<BakesHostData>(args.results[0]);
       }});
}

// Returns the CPU's kernels with an attention that uses the page tables of the first cache group for every layer.
inline KernelTable first_group_kernels() {
  KernelDef attention = **cpu_kernels().get("attention");
  attention.bind = [](const BindArgs& args) -> Result<std::unique_ptr<BoundOp>> {
    ir::Node node = args.node;
    for (auto& [name, value] : node.attributes)
      if (name == "group") value = std::int64_t{0};
    return (*cpu_kernels().get("attention"))
        ->bind({.node = node,
                .operands = args.operands,
                .results = args.results,
                .workspace = args.workspace,
                .device = args.device,
                .context = args.context});
  };
  return cpu_kernels().with(attention);
}

// Returns the largest absolute difference, or infinity if a number is not finite or is missing.
inline double greatest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double greatest = a.size() == b.size() && !a.empty() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    greatest = std::isfinite(d) ? std::max(greatest, d) : INFINITY;
  }
  return greatest;
}

}  // namespace tessera::testing
