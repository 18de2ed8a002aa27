// A rank that hangs, and a rank that loses its connection without an error on its stream.
//
// Catches: a rank that waits forever for a rank that hangs; ranks that still return results after their group has
// ended; an error that does not name its origin.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "faults.h"
#include "tessera/ops/cpu/cpu_op.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A device that hangs at a launch until it is released.
class HangingDevice final : public CpuDevice {
 public:
  HangingDevice(DeviceProperties properties, bool rank_hangs)
      : CpuDevice(std::move(properties)), rank_hangs_(rank_hangs) {}
  static Result<DeviceProperties> properties_of_one_thread() { return read_properties({.threads = 1}); }

  static inline std::atomic<bool> hangs = false;

 protected:
  Status before(DeviceCall call, std::string_view /*object*/) override {
    while (rank_hangs_ && call == DeviceCall::kReplay && hangs)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return ok_status();
  }

 private:
  const bool rank_hangs_;
};

Result<std::unique_ptr<Device>> create_hanging(const DeviceChoice& choice) {
  return std::unique_ptr<Device>(
      std::make_unique<HangingDevice>(TRY(HangingDevice::properties_of_one_thread()), choice.ordinal == 1));
}

std::shared_ptr<const Registry> registry_of_hanging_devices() {
  static const Backend hanging{.create_device = create_hanging, .kernels = cpu_kernels};
  auto registry = std::make_shared<Registry>(built_in_registry());
  EXPECT_TRUE(
      registry->devices
          .add({.name = "hanging", .takes_choice = true, .load = [] { return Result<const Backend*>(&hanging); }})
          .ok());
  return registry;
}

TEST_P(HangingRank, IsNamedWithinTheLimit) {
  Group group(of(), {}, [](EngineOptions& options) {
    options.registry = registry_of_hanging_devices();
    options.device = "hanging";
    options.rank_timeout_s = 3;  // a healthy rank on a loaded machine takes less
  });
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  HangingDevice::hangs = true;
  const auto began = std::chrono::steady_clock::now();
  const Status failed = tokens(group.engine()).status();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << failed.to_string();
  EXPECT_THAT(failed.message(), HasSubstr(of().rank(1) + " did not answer within 3 s"));
  expect_end(group);
  HangingDevice::hangs = false;
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
  add_faulty(*registry);
  for (const KernelDef& kernel : {KernelDef{.op = "all_reduce", .name = "careless", .bind = Careless::bind_reduce},
                                  KernelDef{.op = "all_gather", .name = "careless", .bind = Careless::bind_gather}})
    EXPECT_TRUE(registry->devices.add_kernel("cpu", kernel).ok());
  return registry;
}

TEST_P(LostConnection, LeavesNoResultInUse) {
  Group group(of(), {}, [](EngineOptions& options) { options.registry = registry_of_careless_ranks(); });
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  group.expect_right(0);
  Careless::loses = true;
  group.engine().flush_prefix_cache();
  const Request asked = request(11, 1);  // one step, because the ended group fails each later step
  const Status failed = group.engine().run({&asked, 1}).status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << failed.to_string();
  EXPECT_THAT(failed.message(), AllOf(HasSubstr(of().rank(1)), HasSubstr("its connection is lost")));
  expect_end(group);
}

}  // namespace
}  // namespace tessera::testing
