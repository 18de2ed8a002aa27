// The device "faulty": a device for each rank, which fails at calls that a test chooses.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "tessera/device/testing/fake_device.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera::testing {

inline constexpr int kMostRanks = 4;

// For each rank: the fault plan for its device at the next start, and the device that the last start opened. Both are
// written only while there is no engine.
inline std::array<FaultPlan, kMostRanks> plans;
inline std::array<FakeDevice*, kMostRanks> devices;
inline FakeDevice& device_of(int rank) { return *devices[static_cast<std::size_t>(rank)]; }

inline Result<std::unique_ptr<Device>> create_faulty(const DeviceChoice& choice) {
  const auto rank = static_cast<std::size_t>(choice.ordinal);
  std::unique_ptr<FakeDevice> device = TRY(FakeDevice::create(plans[rank], {.threads = 1}));
  devices[rank] = device.get();
  return device;
}

// Adds the device "faulty"; a device's number is its rank.
inline void add_faulty(Registry& registry) {
  static const Backend faulty{.create_device = create_faulty, .kernels = cpu_kernels};
  EXPECT_TRUE(registry.devices
                  .add({.name = "faulty", .takes_choice = true, .load = [] { return Result<const Backend*>(&faulty); }})
                  .ok());
}

inline std::shared_ptr<const Registry> faulty_registry() {
  static const std::shared_ptr<const Registry> registry = [] {
    auto made = std::make_shared<Registry>(built_in_registry());
    add_faulty(*made);
    return made;
  }();
  return registry;
}

}  // namespace tessera::testing
