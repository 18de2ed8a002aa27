// Catches: an engine's memory report or prediction that leaves out the memory for exchanges between ranks. The ranks
// run on CPUs and are tensor parallel (they divide each layer) or pipeline stages. All are in this process; in some
// tests a thread stands for the second of two nodes.
#include <gtest/gtest.h>

#include <future>
#include <string>

#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/ranks/engine_node.h"
#include "tessera/net/testing/free_port.h"
#include "tessera/runner/memory/prediction.h"

namespace tessera {
namespace {

using enum MemoryUse;

// The maximum number of rows that the head computes at once. A prompt of this many tokens makes the largest exchange.
constexpr std::int64_t kChunk = kMaxHeadRows;

EngineOptions options_of(int tp_size, int pp_size) {
  EngineOptions options{.model_path = testing::data_path("goldens/llama"),
                        .device = "cpu",
                        .tp_size = tp_size,
                        .pp_size = pp_size,
                        .dtype = "float32"};
  options.context_length = 2 * kChunk;
  options.max_running_requests = 4;
  options.chunked_prefill_size = kChunk;
  options.disable_radix_cache = true;
  options.graphs.piecewise_tokens = {32, kChunk};
  options.graphs.decode_batches = {1, 4};
  return options;
}

// Runs more forwards of the largest size than a link can buffer. Each forward computes the logits of all its rows.
void run_largest(Engine& engine) {
  const Request request{.prompt = std::vector<TokenId>(static_cast<std::size_t>(kChunk), TokenId(7)), .score = true};
  for (int forward = 0; forward < 20; ++forward) ASSERT_TRUE(engine.run(std::vector<Request>{request}).ok());
}

std::int64_t planned(const EngineOptions& options) {
  const std::unique_ptr<Device> device = open_device(options).value();
  const EnginePlan plan = plan_engine(options, *device).value();
  return (*predict_memory(plan.graphs, plan.runner, *device))[kCommunication];
}

void expect_predicted(const EngineOptions& options, Engine& engine) {
  const std::int64_t taken = engine.runner().memory()[kCommunication];
  EXPECT_EQ(taken, engine.runner().predicted_memory()[kCommunication]);
  EXPECT_EQ(taken, planned(options));
  EXPECT_EQ(taken, engine.stats().graphs->memory[kCommunication]) << "metrics follow";
}

TEST(RankMemory, ALinkBetweenStagesIsInReportAndPrediction) {
  const EngineOptions options = options_of(1, 2);
  const std::unique_ptr<Engine> engine = Engine::create(options).value();
  EXPECT_LT(engine->runner().memory()[kCommunication], planned(options)) << "no large value has come yet";
  run_largest(*engine);
  // The link has buffered 16 messages. A message has a hidden state of 64 floats for each row.
  EXPECT_EQ(engine->runner().memory()[kCommunication], 16 * kChunk * 64 * 4);
  expect_predicted(options, *engine);
}

TEST(RankMemory, RanksOfOneProcessExchangeWithoutMemory) {
  const EngineOptions options = options_of(2, 1);
  const std::unique_ptr<Engine> engine = Engine::create(options).value();
  run_largest(*engine);
  EXPECT_EQ(engine->runner().memory()[kCommunication], 0);
  expect_predicted(options, *engine);
}

TEST(RankMemory, ReportAndPredictionIncludeMessagesBetweenNodes) {
  EngineOptions options = options_of(2, 1);
  options.nnodes = 2;
  options.dist_init_addr = "127.0.0.1:" + std::to_string(testing::free_port());
  EngineOptions follows = options;
  follows.node_rank = 1;
  std::future<Status> follower = std::async(
      std::launch::async, [follows] { return follow_engine(follows, [](const auto&) { return ok_status(); }); });
  {
    const std::unique_ptr<Engine> engine = Engine::create(options).value();
    run_largest(*engine);
    // A message holds a header and the other rank's half of the logits.
    EXPECT_GT(engine->runner().memory()[kCommunication], kChunk * 256 * 4);
    EXPECT_LT(engine->runner().memory()[kCommunication], kChunk * 256 * 4 + 128);
    expect_predicted(options, *engine);
  }
  EXPECT_TRUE(follower.get().ok());
}

// A plan counts exchanges as memory of forwards, so it does not give this memory to the KV cache.
TEST(RankMemory, PlansCountExchangesAsForwards) {
  const EngineOptions options = options_of(1, 2);
  const std::unique_ptr<Device> device = open_device(options).value();
  const EnginePlan plan = plan_engine(options, *device).value();
  const MemoryReport predicted = *predict_memory(plan.graphs, plan.runner, *device);
  std::int64_t sum = predicted[kStepResults];
  for (const MemoryUse use : {kArena, kWorkspace, kStaticInputs, kPlans, kCommunication}) sum += predicted[use];
  EXPECT_GT(predicted[kCommunication], 0);
  EXPECT_EQ(plan.memory.activations, sum);
}

}  // namespace
}  // namespace tessera
