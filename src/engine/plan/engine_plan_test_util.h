// Makes plans from options for a described device, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tessera/device/testing/described_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"

namespace tessera::test {

inline const std::string kGoldens = testing::data_path("goldens/");
inline constexpr std::int64_t kGiB = std::int64_t{1} << 30;

inline DeviceProperties cpu(bool native_bf16 = false) {
  return {.name = "test", .memory_bytes = 8 * kGiB, .threads = 2, .has_native_bf16 = native_bf16};
}

inline DeviceProperties any_gpu() {
  DeviceProperties properties = cpu(/*native_bf16=*/true);
  properties.type = "cuda";
  properties.on_host = false;
  return properties;
}

using Change = std::function<void(EngineOptions&)>;
inline Result<EnginePlan> try_plan(const Change& change, const DeviceProperties& device = cpu()) {
  EngineOptions options{.model_path = kGoldens + "llama"};
  change(options);
  testing::DescribedDevice described(device);
  return plan_engine(options, described);
}
inline EnginePlan plan(
    const Change& change = [](EngineOptions&) {}, const DeviceProperties& device = cpu()) {
  Result<EnginePlan> made = try_plan(change, device);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *std::move(made) : EnginePlan{};
}

}  // namespace tessera::test
