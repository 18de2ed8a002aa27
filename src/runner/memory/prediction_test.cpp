// Catches: memory that is taken but not predicted; memory that is predicted but not taken; and a report whose parts do
// not add up. The tests compare arena, workspace, every static buffer and graph objects, for several kinds of models
// and ladders.
#include "tessera/runner/memory/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tessera/base/testing/paths.h"
#include "tessera/runner/memory/measure_memory.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using enum MemoryUse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::make_captured;
using testing::RunnerBench;
using ::testing::SizeIs;
using testing::small_options;

ModelGraphs graphs_of(const std::string& folder, const RunnerOptions& options, ir::DType dtype = ir::DType::kFloat32) {
  const ModelConfig config = *ModelConfig::read(folder, built_in_families());
  return *build_model(config, {.dtype = dtype, .page_size = options.page_size, .max_requests = options.max_requests},
                      built_in_ops(), built_in_families());
}
std::string golden(const std::string& name) { return testing::data_path("goldens/" + name); }

// Checks that a prediction is within 1 % of the measurement for arena and workspace, within 25 % for graph objects, and
// equal to it for all other uses.
void expect_met(const MemoryReport& predicted, const MemoryReport& taken) {
  std::vector<std::string_view> uses;
  for (const auto& [use, bytes] : predicted.entries()) {
    const double tolerance = use == kGraphObjects ? 0.25 : use == kArena || use == kWorkspace ? 0.01 : 0;
    EXPECT_NEAR(static_cast<double>(taken[use]), static_cast<double>(bytes),
                tolerance * static_cast<double>(taken[use]))
        << memory_use_name(use);
    uses.push_back(memory_use_name(use));
  }
  EXPECT_THAT(uses, ElementsAre("arena", "workspace", "static_inputs", "attention", "communication", "graph_objects",
                                "step_results"));
}

struct Ladders {
  const char* what;
  std::function<void(RunnerOptions&)> change;
};
const Ladders kLadders[] = {
    {"both", [](RunnerOptions&) {}},
    {"prefill alone", [](RunnerOptions& o) { o.graphs.decode = false; }},
    {"decode alone", [](RunnerOptions& o) { o.graphs.prefill = false; }},
    {"whole",
     [](RunnerOptions& o) {
       o.split_ops.clear();
       o.graphs.prefill_whole = true;
     }},
    {"off", [](RunnerOptions& o) { o.graphs.prefill = o.graphs.decode = false; }},
    {"large",
     [](RunnerOptions& o) {
       o.max_tokens = 512;
       o.prefill_sizes = {8, 64, 256, 512};
       o.decode_sizes = {1, 3};
     }},
};

TEST(Prediction, IsWhatARunnerTakes) {
  for (const char* model : {"llama", "qwen3", "mistral-swa"}) {
    for (const Ladders& ladders : kLadders) {
      SCOPED_TRACE(std::string(model) + ", " + ladders.what);
      RunnerOptions options = small_options();
      ladders.change(options);
      const RunnerBench bench = make_captured(model, options);
      const Result<MemoryReport> predicted = predict_memory(graphs_of(golden(model), options), options, *bench.device);
      ASSERT_TRUE(predicted.ok()) << predicted.status().to_string();
      expect_met(*predicted, bench.runner->memory());
      expect_met(bench.runner->predicted_memory(), bench.runner->memory());
    }
  }
}

// This test uses the repository's demo model. The captured sizes are those with which this model is served.
TEST(Prediction, IsWhatTheBundledModelTakes) {
  const std::string folder = testing::source_path("models/demo");
  RunnerOptions options = small_options();
  options.max_tokens = 512;
  options.max_requests = 32;
  options.context_length = 512;
  options.num_pages = {65};
  options.prefill_sizes = {16, 64, 128, 256, 512};
  options.decode_sizes = {1, 2, 4, 8, 16, 32};
  ModelGraphs graphs = graphs_of(folder, options);
  const auto device = FakeDevice::create({}, {.threads = 1}).value();
  const MemoryReport predicted = *predict_memory(graphs, options, *device);
  Weights weights = *Weights::load(graphs.weights, checkpoint_source(*Checkpoint::open(folder)), *device, false);
  const auto runner = *ModelRunner::create(std::move(graphs), std::move(weights), *device, options);
  ASSERT_TRUE(runner->capture().ok());
  expect_met(predicted, runner->memory());
}

// Checks that the predicted arena is large enough for every size, and that each size reports its own need.
TEST(Prediction, TheArenaIsTheLargestNeed) {
  const RunnerOptions options = small_options();
  const RunnerBench bench = make_captured("llama", options);
  const MemoryReport all =
      *predict_memory(graphs_of(golden("llama"), options), options, *bench.device, PredictionDetail::kEverySize);
  ASSERT_THAT(all.runners, SizeIs(2));
  for (const RunnerMemory& of : all.runners) {
    const GraphRunner& runner = bench.runner->runner(of.role);
    ASSERT_THAT(of.sizes, SizeIs(3));
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(of.sizes[i].size, runner.spec().ladder[i]);
      const MemoryNeed need = *runner.executable().memory_need(runner.bucket(of.sizes[i].size));
      EXPECT_EQ(of.sizes[i].need.arena_bytes, need.arena_bytes);
      EXPECT_LE(need.arena_bytes, all[kArena]);
    }
  }
  EXPECT_LT(all.runners[0].sizes[0].need.arena_bytes, all.runners[0].sizes[2].need.arena_bytes);
  const MemoryReport totals = *predict_memory(graphs_of(golden("llama"), options), options, *bench.device);
  EXPECT_EQ(totals.runners[0].sizes[2].need.arena_bytes, 0) << "not asked for";
  EXPECT_EQ(totals[kArena], all[kArena]);
}

TEST(Prediction, GraphsAreCountedAsTheyAreMade) {
  const RunnerOptions options = small_options();
  const RunnerBench bench = make_captured("llama", options);
  const MemoryReport p = *predict_memory(graphs_of(golden("llama"), options), options, *bench.device);
  // The attention operators of three layers cut a prefill into four pieces. A decode is one piece.
  const GraphMemory prefill = p.runner(RunnerRole::kPrefill)->sizes[0].graphs;
  const GraphMemory decode = p.runner(RunnerRole::kDecode)->sizes[0].graphs;
  EXPECT_EQ(prefill.graphs, 4);
  EXPECT_EQ(decode.graphs, 1);
  const DeviceProperties& device = bench.device->properties();
  EXPECT_EQ(decode.bytes, device.graph_bytes + decode.nodes * device.graph_node_bytes);
  EXPECT_EQ(p[kGraphObjects], 3 * prefill.bytes + 3 * decode.bytes);
  const MemoryReport taken = bench.runner->memory();
  ASSERT_THAT(taken.runners, SizeIs(2));
  for (const SizeMemory& size : taken.runners[0].sizes) {
    EXPECT_EQ(size.graphs.graphs, prefill.graphs);
    EXPECT_EQ(size.graphs.nodes, prefill.nodes);
    EXPECT_EQ(size.graphs.bytes, prefill.bytes);
  }
}

// The report's captured sizes and their bytes must equal the runners' own counts.
TEST(MemoryReport, ListsCapturedSizesByRunner) {
  RunnerBench bench = make_captured("llama", small_options());
  const MemoryReport report = bench.runner->memory();
  ASSERT_THAT(report.runners, SizeIs(2));
  std::int64_t bytes = 0;
  for (std::size_t r = 0; r < 2; ++r) {
    const GraphRunner& runner = r == 0 ? bench.runner->prefill() : bench.runner->decode();
    const RunnerMemory& memory = report.runners[r];
    EXPECT_EQ(memory.role, runner.spec().role);
    std::vector<std::int64_t> sizes;
    std::int64_t nodes = 0;
    for (const SizeMemory& size : memory.sizes) {
      sizes.push_back(size.size);
      nodes += size.graphs.nodes;
      EXPECT_GT(size.graphs.bytes, 0);
    }
    EXPECT_EQ(sizes, runner.report().captured);
    EXPECT_EQ(nodes, runner.report().graphs.nodes);
    EXPECT_EQ(memory.graph_bytes(), runner.report().graphs.bytes);
    bytes += memory.graph_bytes();
  }
  EXPECT_EQ(report[kGraphObjects], bytes);
  EXPECT_GT(report.available, 0);
}

// If the device does not report graph memory, the measured bytes are divided among the sizes in proportion to their
// estimates. Otherwise the reported bytes are used.
TEST(MemoryReport, UnreportedGraphBytesAreShared) {
  EXPECT_EQ(graph_bytes({.nodes = 8, .bytes = 0}, 4000, 0.75), 3000);
  EXPECT_EQ(graph_bytes({.nodes = 8, .bytes = 500}, 4000, 0.75), 500);
  const RunnerBench bench = make_captured("llama", small_options());
  const RunnerMemory told = runner_memory(bench.runner->prefill(), bench.device->properties(), 0.5);
  EXPECT_EQ(told.graph_bytes(), bench.runner->prefill().report().graphs.bytes);
}

// Lazily captured sizes enter the report when they are captured, and no earlier.
TEST(MemoryReport, IncludesLaterCaptures) {
  RunnerOptions options = small_options();
  options.capture = CaptureMode::kLazy;
  RunnerBench bench = make_captured("llama", options);
  EXPECT_EQ(bench.runner->memory()[kGraphObjects], 0);
  bench.logits({{testing::ids(9)}});
  const MemoryReport report = bench.runner->memory();
  ASSERT_THAT(report.runners[0].sizes, SizeIs(1));
  EXPECT_EQ(report.runners[0].sizes[0].size, 16);
  EXPECT_EQ(report[kGraphObjects], report.runners[0].graph_bytes());
  EXPECT_GT(report[kGraphObjects], 0);
}

// A device of 8 GiB that reports how much of it is free.
class PartlyFree : public CpuDevice {
 public:
  static DeviceProperties of_8_gib() {
    DeviceProperties properties = CpuDevice::create({.threads = 1}).value()->properties();
    properties.memory_bytes = std::int64_t{8} << 30;
    return properties;
  }
  explicit PartlyFree(std::int64_t available) : CpuDevice(of_8_gib()), available_(available) {}
  std::int64_t available_bytes() const override { return available_; }

 private:
  std::int64_t available_;
};

std::unique_ptr<ModelRunner> llama_on(Device& device, const RunnerOptions& options) {
  ModelGraphs graphs = graphs_of(golden("llama"), options);
  const WeightSource source = checkpoint_source(*Checkpoint::open(golden("llama")));
  Weights weights = *Weights::load(graphs.weights, source, device, false);
  return *ModelRunner::create(std::move(graphs), std::move(weights), device, options);
}

// Returns the log of a capture with `available` free bytes on the device.
std::string log_of_capture(std::int64_t available, const RunnerOptions& options = small_options()) {
  PartlyFree device(available);
  const std::unique_ptr<ModelRunner> runner = llama_on(device, options);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(runner->capture().ok());
  return ::testing::internal::GetCapturedStderr();
}

TEST(MemoryReport, LogsMemoryAndWarnsWhereLittleIsLeft) {
  // The reserve is 512 + 128 MiB. The test leaves 319 MiB, which is less than the half that should remain free.
  const std::string poor = log_of_capture(319 << 20);
  EXPECT_THAT(poor, HasSubstr("memory: weights"));
  EXPECT_THAT(poor, HasSubstr("memory: only 0.33 GB of the device's memory are left"));
  EXPECT_THAT(poor, HasSubstr("mem_fraction_static (0.8, 0.7)"));
  const std::string rich = log_of_capture(321 << 20);
  EXPECT_THAT(rich, HasSubstr("memory: weights"));
  EXPECT_THAT(rich, ::testing::Not(HasSubstr("memory: only")));
}

// Deferred sizes take their memory only after the start. A warning would then be too late, so the warning at the start
// counts these sizes too.
TEST(MemoryReport, TheWarningCountsPendingSizes) {
  RunnerOptions options = small_options();
  options.capture = CaptureMode::kCore;
  options.prefill_sizes = {8, 10, 12, 40};
  options.decode_sizes = {1, 2, 3, 4};
  PartlyFree device(std::int64_t{1} << 30);
  std::int64_t later = 0;
  const std::unique_ptr<ModelRunner> made = llama_on(device, options);
  for (const RunnerMemory& runner : made->predicted_memory().runners)
    for (const SizeMemory& size : runner.sizes)
      if (size.size == 3 || size.size == 10 || size.size == 12) later += size.graphs.bytes;
  ASSERT_GT(later, 0);
  constexpr std::int64_t kLow = 320 << 20;
  EXPECT_THAT(log_of_capture(kLow + later - 1, options), HasSubstr("are left once all sizes are captured, less"));
  EXPECT_THAT(log_of_capture(kLow + later, options), ::testing::Not(HasSubstr("memory: only")));
  options.capture = CaptureMode::kEager;
  EXPECT_THAT(log_of_capture(kLow, options), ::testing::Not(HasSubstr("memory: only")));
  EXPECT_THAT(log_of_capture(kLow - 1, options), HasSubstr("are left, less"));
}

TEST(MemoryReport, DeviceEntriesLeaveHostMemoryOut) {
  MemoryReport report;
  EXPECT_EQ(report[kArena], 0);
  report.set(kStepResults, 7);
  report.set(kPlans, 0);
  report.set(kArena, 5);
  EXPECT_EQ(report[kArena], 5);
  EXPECT_THAT(report.entries(), ElementsAre(std::pair(kArena, 5), std::pair(kPlans, 0), std::pair(kStepResults, 7)));
  EXPECT_THAT(report.device_entries(), ElementsAre(std::pair(kArena, 5), std::pair(kPlans, 0)));
  EXPECT_EQ(report.forwards(), 5);
  EXPECT_EQ(report.runner(RunnerRole::kDecode), nullptr);
}

TEST(MemoryReserve, IsSmallBesideTheMemoryAndNeverNothing) {
  for (const std::int64_t bytes : {std::int64_t{1} << 30, std::int64_t{24} << 30, std::int64_t{140} << 30}) {
    DeviceProperties device;
    device.memory_bytes = bytes;
    const std::int64_t reserve = memory_reserve(device);
    EXPECT_GT(reserve, bytes / 64);
    EXPECT_LT(reserve, bytes / 8);
  }
}

}  // namespace
}  // namespace tessera
