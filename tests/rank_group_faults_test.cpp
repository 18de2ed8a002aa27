// Tests faults of tensor-parallel ranks in one process. rank_faults_test.cpp tests faults of all topologies.
//
// Catches: a failure that is not noticed when the forward is collected; ranks that still return results after their
// group has ended; a rank that waits forever for a rank that hangs, is still loading or could not be created; a thread
// that is left running.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "faulty_ranks.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/runner/followers/rank_host.h"
#include "tessera/runner/ranks/rank_group.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::devices;
using ::testing::HasSubstr;
using testing::plans;
using testing::request;
using testing::tokens;

// A device that hangs at a launch until it is released.
class HangingDevice final : public CpuDevice {
 public:
  explicit HangingDevice(DeviceProperties properties) : CpuDevice(std::move(properties)) {}
  static Result<DeviceProperties> properties_of_one_thread() { return read_properties({.threads = 1}); }

  static inline std::atomic<bool> hangs = false;

 protected:
  Status before(DeviceCall call, std::string_view /*object*/) override {
    while (rank_hangs && call == DeviceCall::kReplay && hangs)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return ok_status();
  }

 public:
  bool rank_hangs = false;
};

Result<std::unique_ptr<Device>> create_hanging(const DeviceChoice& choice) {
  auto device = std::make_unique<HangingDevice>(TRY(HangingDevice::properties_of_one_thread()));
  device->rank_hangs = choice.ordinal == 1;
  return device;
}

// Collectives that behave like those of GPUs: when the group ends, they continue with incomplete data, and the streams
// report no error.
struct Careless {
  static inline std::atomic<bool> loses = false;  // rank 1 loses the other ranks after its next sum
  static inline std::atomic<std::uint32_t> ended = 0;

  static Result<std::unique_ptr<BoundOp>> bind_reduce(const BindArgs& args) {
    return make_cpu_op("all_reduce", [x = args.operands[0], communicator = args.context.communicator]() -> Status {
      (void)communicator->all_reduce(x);
      if (communicator->rank() != 1 || !loses.exchange(false)) return ok_status();
      communicator->raise_when_ended(&ended);
      communicator->abort("its connection is lost");
      return ok_status();
    });
  }
  static Result<std::unique_ptr<BoundOp>> bind_gather(const BindArgs& args) {
    return make_cpu_op(
        "all_gather",
        [x = args.operands[0], y = args.results[0], communicator = args.context.communicator]() -> Status {
          (void)communicator->all_gather(x, y);
          return ok_status();
        });
  }
};

std::shared_ptr<const Registry> registry_of_careless_ranks() {
  auto registry = std::make_shared<Registry>(built_in_registry());
  testing::add_faulty(*registry);
  for (const KernelDef& kernel : {KernelDef{.op = "all_reduce", .name = "careless", .bind = Careless::bind_reduce},
                                  KernelDef{.op = "all_gather", .name = "careless", .bind = Careless::bind_gather}})
    EXPECT_TRUE(registry->devices.add_kernel("cpu", kernel).ok());
  return registry;
}

std::shared_ptr<const Registry> registry_of_faulty_devices() {
  static const Backend hanging{.create_device = create_hanging, .kernels = cpu_kernels};
  auto registry = std::make_shared<Registry>(built_in_registry());
  testing::add_faulty(*registry);
  EXPECT_TRUE(
      registry->devices
          .add({.name = "hanging", .takes_choice = true, .load = [] { return Result<const Backend*>(&hanging); }})
          .ok());
  return registry;
}

EngineOptions options_for(int ranks = 2) {
  static const std::shared_ptr<const Registry> registry = registry_of_faulty_devices();
  return testing::faulty_options(registry, ranks);
}

void expect_right(Engine& engine, int n) { testing::expect_right(engine, options_for(1), n); }

using RankGroupFaults = testing::FaultyRanks;

// The failing rank has taken part in all sums, so rank 0 notices the failure only when the forward is collected.
TEST_F(RankGroupFaults, DropsASizeWhoseLastPieceKeepsFailing) {
  const std::unique_ptr<Engine> engine = Engine::create(options_for()).value();
  const std::int64_t last = engine->runner().prefill().executable().graph().num_pieces();
  // The first chunk of 32 tokens computes no logits, so no gather of logits over the ranks follows its last piece.
  const Request asked = request(40, 2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(engine->runner().prefill().report().dropped.empty()) << i;
    engine->flush_prefix_cache();
    devices[1]->set_plan({.replay_fails_at = last});
    const Status failed = engine->run({&asked, 1}).status();
    EXPECT_THAT(failed.message(), AllOf(HasSubstr("rank 1 of 2"), HasSubstr("injected"))) << i;
  }
  devices[1]->set_plan({});
  const CaptureReport& report = engine->runner().prefill().report();
  ASSERT_EQ(report.dropped.size(), 1U);
  EXPECT_EQ(report.dropped[0].first, 32);
  expect_right(*engine, 0);
}

// One rank fails after its last sum. The other rank has already begun the next forward, which fails too, because the
// failed rank takes no part in it.
TEST_F(RankGroupFaults, RecomputesAForwardThatEndedWithAnEarlierOne) {
  EngineOptions options = options_for();
  options.overlap_schedule = true;
  const std::unique_ptr<Engine> engine = Engine::create(options).value();
  const std::int64_t last = engine->runner().prefill().executable().graph().num_pieces();
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(testing::first_alone_fails(*engine, options_for(1), 1, &FaultPlan::replay_fails_at, last)) << i;
}

TEST_F(RankGroupFaults, DiscardsResultsOfAnEndedGroup) {
  const std::unique_ptr<Engine> engine =
      Engine::create(testing::faulty_options(registry_of_careless_ranks(), 2)).value();
  expect_right(*engine, 0);
  Careless::loses = true;
  engine->flush_prefix_cache();
  const Request asked = request(11, 1);  // one step, because the ended group fails each later step
  const Status failed = engine->run({&asked, 1}).status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << failed.to_string();
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("rank 1 of 2"), HasSubstr("its connection is lost")));
}

TEST_F(RankGroupFaults, ARankThatHangsIsNamedWithinTheLimit) {
  EngineOptions options = options_for();
  options.device = "hanging";
  options.rank_timeout_s = 3;  // a healthy rank on a loaded machine takes less
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  HangingDevice::hangs = true;
  const auto began = std::chrono::steady_clock::now();
  const Status failed = tokens(**engine).status();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << failed.to_string();
  EXPECT_THAT(failed.message(), HasSubstr("rank 1 of 2 did not answer within 3 s"));
  HangingDevice::hangs = false;
}

// A RankHost that cannot be created, or whose weights load slowly.
class SlowHost final : public RankHost {
 public:
  explicit SlowHost(const std::atomic<bool>& loads) : loads_(loads) {}
  Result<RankLimits> plan(std::int64_t /*max_requests*/) override { return RankLimits{}; }
  Result<ModelRunner*> load(const RankLimits& /*agreed*/, Communicator& /*communicator*/) override {
    while (loads_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return internal_error("it was let go");
  }

 private:
  const std::atomic<bool>& loads_;
};

TEST_F(RankGroupFaults, AFailedLoadOnRankZeroWaitsForNone) {
  std::atomic<bool> loads = true;
  const std::unique_ptr<RankGroup> group =
      RankGroup::start({.ranks = 2, .limit = std::chrono::seconds(60), .body = following([&](int) {
                                                                         return std::make_unique<SlowHost>(loads);
                                                                       })});
  const RankLimits agreed = group->agree({}).value();
  const Status failed = group->load(agreed, [] { return not_found("no weights"); });
  loads = false;
  EXPECT_EQ(failed.code(), StatusCode::kNotFound) << failed.to_string();
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("rank 0 of 2"), HasSubstr("no weights")));
  EXPECT_EQ(group->agree({}).status().code(), StatusCode::kDeviceLost) << "what the others do is unknown";
}

TEST_F(RankGroupFaults, ARankThatCannotBeMadeSaysSo) {
  const std::unique_ptr<RankGroup> group = RankGroup::start(
      {.ranks = 2, .limit = std::chrono::seconds(60), .body = following([](int) -> std::unique_ptr<RankHost> {
                                                        throw std::runtime_error("no memory for a host");
                                                      })});
  for (int n = 0; n < 2; ++n) {
    const Status failed = group->agree({}).status();
    EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << failed.to_string();
    EXPECT_THAT(failed.message(), AllOf(HasSubstr("rank 1 of 2"), HasSubstr("no memory for a host")));
  }
}

}  // namespace
}  // namespace tessera
