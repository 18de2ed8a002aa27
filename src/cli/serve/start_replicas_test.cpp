// Catches: a replica that is opened on another replica's devices, and an error that does not name its replica.
#include "tessera/cli/serve/start_replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera::cli {
namespace {

EngineOptions demo() {
  EngineOptions options{.model_path = ::tessera::testing::source_path("models/demo")};
  options.context_length = 64;
  options.max_running_requests = 2;
  options.graphs.mode = GraphMode::kOff;
  return options;
}

TEST(StartReplicas, UseTheirOwnDevicesAfterTheFirst) {
  std::mutex mutex;
  std::vector<int> opened;
  const Backend many{.create_device = [&](const DeviceChoice& choice) -> Result<std::unique_ptr<Device>> {
                       const std::lock_guard lock(mutex);
                       opened.push_back(choice.ordinal);
                       return TRY(CpuDevice::create({.threads = 1}));
                     },
                     .kernels = cpu_kernels};
  Registry registry = built_in_registry();
  ASSERT_TRUE(registry.devices.add({.name = "many", .takes_choice = true, .load = [&] { return &many; }}).ok());
  EngineOptions options = demo();
  options.registry = std::make_shared<const Registry>(std::move(registry));
  options.device = "many:1";
  options.tp_size = 2;
  const auto engines = start_replicas(options, 2);
  ASSERT_TRUE(engines.ok()) << engines.status().to_string();
  EXPECT_THAT(opened, ::testing::UnorderedElementsAre(1, 2, 3, 4));
}

TEST(StartReplicas, CpuReplicasShareTheCores) {
  const int cores = CpuDevice::create({}).value()->properties().threads;
  const auto engines = start_replicas(demo(), 2);
  ASSERT_TRUE(engines.ok()) << engines.status().to_string();
  ASSERT_EQ(engines->engines.size(), 2u);
  for (const std::unique_ptr<Engine>& engine : engines->engines)
    EXPECT_EQ(engine->runner().device().properties().threads, std::max(1, cores / 2));
}

TEST(StartReplicas, RanksOfOneGroupFailTogether) {
  EngineOptions options = demo();
  options.dp_attention = true;
  const auto engines = start_replicas(options, 2);
  EXPECT_THAT(engines.status().message(), ::testing::HasSubstr("replica 0 of 2"));
  EXPECT_THAT(engines.status().message(), ::testing::HasSubstr("enable_dp_attention: the model has no experts"));
}

TEST(StartReplicas, SeveralNodesNeedAnAddressAndEqualParts) {
  EngineOptions options = demo();
  options.dp_attention = true;
  options.nnodes = 2;
  EXPECT_THAT(start_replicas(options, 4).status().message(), ::testing::HasSubstr("dist_init_addr is missing"));
  EXPECT_THAT(start_replicas(options, 3).status().message(),
              ::testing::HasSubstr("nnodes: 3 ranks (tp_size) do not divide among 2 nodes"));
}

TEST(StartReplicas, AnErrorNamesTheReplica) {
  const auto engines = start_replicas({.model_path = "/nowhere"}, 2);
  EXPECT_THAT(engines.status().message(), ::testing::HasSubstr("replica 0 of 2"));
  EXPECT_THAT(engines.status().message(), ::testing::HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace tessera::cli
