// Pipeline stages with unequal layers have room for the states of different numbers of requests. All stages must use
// the least of these numbers. Catches: stages that cannot start together; a start with another number of requests, or
// with graph sizes for another number; and a plan (plan_as_ranks) that contradicts the start.
#include "tessera/engine/ranks/engine_rank.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/device/testing/described_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/plan/plan_ladders.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// The memory that both ranks share.
constexpr std::int64_t kMemory = std::int64_t{32} << 20;

Result<std::unique_ptr<Device>> create_small(const DeviceChoice& /*choice*/) {
  set_worker_threads(1);  // as a CPU device does, because the memory of forwards depends on the number of threads
  return std::unique_ptr<Device>(std::make_unique<testing::DescribedDevice>(
      DeviceProperties{.name = "small", .memory_bytes = kMemory, .threads = 1}));
}

std::shared_ptr<const Registry> small_registry() {
  auto registry = std::make_shared<Registry>(built_in_registry());
  static const Backend small{.create_device = create_small, .kernels = cpu_kernels};
  EXPECT_TRUE(registry->devices
                  .add({.name = "small", .takes_choice = true, .load = [] { return Result<const Backend*>(&small); }})
                  .ok());
  return registry;
}

// Makes options for a hybrid model in two pipeline stages. The layer with the index `attends` has full attention and
// keeps keys and values in pages. All other layers are recurrent and keep a state. A request needs far more memory in
// the stage that has the layer with full attention.
class UnequalStages : public ::testing::Test {
 protected:
  EngineOptions options_for(std::size_t attends) {
    std::ifstream golden(testing::data_path("goldens/qwen3.5-text/config.json"));
    std::string config(std::istreambuf_iterator<char>(golden), {});
    const std::string full = "\"full_attention\"";
    const std::string linear = "\"linear_attention\"";
    config.replace(config.find(full), full.size(), linear);
    std::size_t at = config.find(linear);
    for (std::size_t layer = 0; layer < attends; ++layer) at = config.find(linear, at + 1);
    config.replace(at, linear.size(), full);
    folder_.write("config.json", config);
    EngineOptions options{.registry = small_registry(),
                          .model_path = folder_.path(),
                          .device = "small",
                          .pp_size = 2,
                          .dtype = "float32",
                          .load_format = LoadFormat::kDummy};
    options.rank_timeout_s = 20;
    options.chunked_prefill_size = 32;
    options.random_seed = 1;
    options.graphs.piecewise_tokens = {32};
    return options;
  }
  // Returns the number of requests that a stage alone has room for.
  static std::int64_t alone(const EngineOptions& options, int rank) {
    const std::unique_ptr<Device> device = open_device(options, rank).value();
    return plan_engine(options, *device, rank).value().max_running;
  }

  test::ScratchDir folder_;
};

TEST_F(UnequalStages, AgreeOnTheLeastOfAllStages) {
  // Layer 3 is in the last stage, which is rank 0's. Layer 0 is in the first stage.
  for (const std::size_t attends : {3, 0}) {
    EngineOptions options = options_for(attends);
    const std::int64_t own = alone(options, 0);
    const std::int64_t others = alone(options, 1);
    ASSERT_NE(own, others);
    EXPECT_EQ(own < others, attends == 3);
    const std::int64_t fewest = std::min(own, others);

    const std::unique_ptr<Device> device = open_device(options).value();
    const EnginePlan plan = plan_as_ranks(options, *device).value();
    const Result<std::unique_ptr<Engine>> started = Engine::create(options);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    Engine& engine = **started;
    EXPECT_EQ(engine.max_running(), fewest);
    EXPECT_EQ(engine.runner().options().decode_sizes, decode_ladder(fewest));
    const std::string line = fmt::format("{} requests run at once, for whose states every rank has room", fewest);
    const std::string more = own > fewest ? fmt::format("; rank 0 alone would have it for {}", own) : "";
    EXPECT_THAT(engine.notes(), Contains(line + more));

    EXPECT_EQ(plan.max_running, fewest);
    EXPECT_EQ(plan.runner.num_pages, engine.runner().options().num_pages);
    EXPECT_EQ(plan.runner.decode_sizes, decode_ladder(fewest));
    EXPECT_THAT(plan.notes, Contains(HasSubstr(line)));

    // Sends more requests than can run at once. All of them must complete.
    std::vector<Request> requests;
    for (std::int32_t r = 0; r < fewest + 5; ++r)
      requests.push_back({.prompt = {TokenId(3 + r % 400), TokenId(9), TokenId(27)},
                          .stop = {.max_new_tokens = 3, .ignore_eos = true}});
    const Result<std::vector<Completion>> done = engine.run(requests);
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    for (const Completion& completion : *done) EXPECT_EQ(completion.output_ids.size(), 3U);
  }
}

// If the options name a number of requests and every stage has room for it, the number is kept, without a note.
TEST_F(UnequalStages, KeepARequestedNumber) {
  EngineOptions options = options_for(3);
  options.max_running_requests = 4;
  const std::unique_ptr<Engine> engine = Engine::create(options).value();
  EXPECT_EQ(engine->max_running(), 4);
  EXPECT_THAT(engine->notes(), Each(Not(HasSubstr("requests run at once"))));
}

}  // namespace
}  // namespace tessera
