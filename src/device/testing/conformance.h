// The conformance suite of backends: memory, copies, arenas, order, events and recorded graphs. The tests are in
// conformance_memory.cpp, conformance_transfer.cpp and conformance_recording.cpp (the object library
// tessera_device_conformance). The test program of a backend links them and instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance, ::testing::Values(DeviceFactory{"cpu", [] { … }}),
//   device_factory_name);
//
// Kernels differ between backends, so these tests use copies and fills in place of kernels. Copies and fills are
// recorded like kernels.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/device/device.h"

namespace tessera {

struct DeviceFactory {
  std::string name;
  // Opens the device. If this machine has no such device, returns kNotFound, and the suite is skipped with the error's
  // message.
  std::function<Result<std::unique_ptr<Device>>()> create;
};

inline std::string device_factory_name(const ::testing::TestParamInfo<DeviceFactory>& info) { return info.param.name; }

inline std::ostream& operator<<(std::ostream& out, const DeviceFactory& factory) { return out << factory.name; }

class DeviceConformance : public ::testing::TestWithParam<DeviceFactory> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> device = GetParam().create();
    if (device.status().code() == StatusCode::kNotFound) GTEST_SKIP() << device.status().message();
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = std::move(device).value();
    Result<std::unique_ptr<Stream>> stream = device_->create_stream("main");
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    stream_ = std::move(stream).value();
  }

  // Destroys streams before memory, as the contract requires.
  void TearDown() override { stream_.reset(); }

  std::unique_ptr<Allocation> allocate(std::size_t bytes, std::string_view name = "test") {
    Result<std::unique_ptr<Allocation>> memory = device_->allocate(bytes, name);
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    return memory.ok() ? std::move(memory).value() : nullptr;
  }

  std::unique_ptr<HostAllocation> allocate_host(std::size_t bytes, std::string_view name = "test") {
    Result<std::unique_ptr<HostAllocation>> memory = device_->allocate_host(bytes, name);
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    return memory.ok() ? std::move(memory).value() : nullptr;
  }

  std::unique_ptr<Arena> create_arena(std::size_t reserve_bytes, std::string name = "arena") {
    Result<std::unique_ptr<Arena>> arena =
        device_->create_arena({.reserve_bytes = reserve_bytes, .name = std::move(name)});
    EXPECT_TRUE(arena.ok()) << arena.status().message();
    return arena.ok() ? std::move(arena).value() : nullptr;
  }

  void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }

  void expect_refused(const Status& status, const std::vector<std::string>& words) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
    for (const std::string& word : words) EXPECT_THAT(status.message(), ::testing::HasSubstr(word));
  }

  // Returns the initial size of an arena, before any grow().
  std::size_t size_at_first(const Arena& arena) const {
    return device_->properties().arenas_grow ? 0 : arena.reserved();
  }

  void expect_aligned(DeviceAddress address) {
    EXPECT_EQ(address.offset % kDeviceAlignment, 0u);
    if (!device_->properties().has_pointers) return;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address.raw()) % kDeviceAlignment, 0u);
  }

  void write(DeviceAddress to, const std::vector<std::uint8_t>& values) {
    expect_ok(stream_->upload(to, values.data(), values.size()));
    expect_ok(stream_->synchronize());
  }

  std::vector<std::uint8_t> read(DeviceAddress from, std::size_t bytes) {
    std::vector<std::uint8_t> values(bytes, 0xEE);
    expect_ok(stream_->download(values.data(), from, bytes));
    expect_ok(stream_->synchronize());
    return values;
  }

  static std::vector<std::uint8_t> content(const HostAllocation& host) {
    const auto* const data = reinterpret_cast<const std::uint8_t*>(host.data());
    return {data, data + host.size()};
  }

  // Makes pseudo-random bytes that depend only on `seed`.
  static std::vector<std::uint8_t> pattern(std::size_t bytes, unsigned seed) {
    std::vector<std::uint8_t> values(bytes);
    unsigned state = seed * 2654435761u + 1;
    for (std::uint8_t& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<std::uint8_t>(state >> 24);
    }
    return values;
  }

  // Records the work that `enqueue` enqueues on the stream. If that fails, fails the test and returns null.
  std::unique_ptr<RecordedGraph> record(const std::string& what, const std::function<void()>& enqueue) {
    expect_ok(stream_->begin_recording(what));
    enqueue();
    Result<std::unique_ptr<RecordedGraph>> graph = stream_->end_recording();
    EXPECT_TRUE(graph.ok()) << graph.status().message();
    return graph.ok() ? std::move(graph).value() : nullptr;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace tessera
