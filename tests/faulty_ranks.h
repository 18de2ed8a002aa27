// Ranks whose devices fail at calls that a test chooses, and the tokens that their engine must return nevertheless.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/device/testing/environment.h"
#include "tessera/device/testing/fake_device.h"
#include "tessera/engine/engine.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera::testing {

inline constexpr int kMostRanks = 4;

// For each rank: the fault plan for its device at the next start, and the device that the last start opened. Both are
// written only while there is no engine.
inline std::array<FaultPlan, kMostRanks> plans;
inline std::array<FakeDevice*, kMostRanks> devices;

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

inline EngineOptions faulty_options(std::shared_ptr<const Registry> registry, int ranks) {
  EngineOptions options{.registry = std::move(registry),
                        .model_path = data_path("goldens/llama"),
                        .device = "faulty",
                        .tp_size = ranks,
                        .dtype = "float32"};
  options.rank_timeout_s = 20;
  options.context_length = 64;
  options.chunked_prefill_size = 32;
  options.max_running_requests = 4;
  options.page_size = 8;
  options.random_seed = 1;
  options.graphs.piecewise_tokens = {8, 32};
  options.graphs.decode_batches = {1, 2};
  return options;
}

inline Request request(std::int64_t prompt, std::int64_t new_tokens) {
  Request made{.stop = {.max_new_tokens = new_tokens, .ignore_eos = true}};
  for (std::int32_t i = 0; i < prompt; ++i) made.prompt.emplace_back((61 + i * 17 + i * i) % 500);
  return made;
}

inline Result<std::vector<TokenId>> tokens(Engine& engine) {
  const Request asked = request(11, 6);
  const std::vector<Completion> done = TRY(engine.run({&asked, 1}));
  return done[0].output_ids;
}

// Returns the tokens that one rank without faults returns.
inline const std::vector<TokenId>& right_tokens(const EngineOptions& one_rank) {
  static const std::vector<TokenId> made = tokens(*Engine::create(one_rank).value()).value();
  return made;
}

inline void expect_right(Engine& engine, const EngineOptions& one_rank, int n) {
  engine.flush_prefix_cache();
  const Result<std::vector<TokenId>> got = tokens(engine);
  ASSERT_TRUE(got.ok()) << n << ": " << got.status().to_string();
  EXPECT_EQ(*got, right_tokens(one_rank)) << n;
}

// Returns requests whose longer prompts begin with the shorter ones.
inline const std::array<Request, 3>& family() {
  static const std::array<Request, 3> made = {request(40, 6), request(52, 6), request(48, 6)};
  return made;
}
inline const std::vector<Completion>& right_family(const EngineOptions& one_rank) {
  static const std::vector<Completion> made = [&] {
    std::vector<Completion> each;
    for (const Request& one : family()) each.push_back(Engine::create(one_rank).value()->run({&one, 1}).value()[0]);
    return each;
  }();
  return made;
}

// Runs two requests, the second of which begins like the first, while the `n`-th `fault` of a rank's device occurs.
// Then runs a third request, which begins like both. Checks that the third request, and each request that ends without
// an error, has the tokens that one rank without faults returns. Returns whether the first request failed and the
// second did not.
inline bool first_alone_fails(Engine& engine, const EngineOptions& one_rank, int rank, std::int64_t FaultPlan::*fault,
                              std::int64_t n) {
  const std::array<Request, 3>& asked = family();
  const std::vector<Completion>& right = right_family(one_rank);
  FakeDevice& device = *devices[static_cast<std::size_t>(rank)];
  engine.flush_prefix_cache();
  std::array<RequestId, 2> ids{};
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = engine.submit(asked[i]).value();
  FaultPlan plan;
  plan.*fault = n;
  device.set_plan(plan);
  while (!engine.idle()) {
    const Status stepped = engine.step().status();
    EXPECT_TRUE(stepped.ok()) << n << ": " << stepped.to_string();
    if (!stepped.ok()) return false;
  }
  EXPECT_EQ(device.counts().faults, 1) << n;
  device.set_plan({});
  std::array<bool, 2> failed{};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::optional<Completion> done = engine.take(ids[i]);
    failed[i] = done->finish == FinishReason::kError;
    if (failed[i]) continue;
    EXPECT_EQ(done->output_ids, right[i].output_ids) << "request " << i << ", " << n;
  }
  const Result<std::vector<Completion>> later = engine.run({&asked[2], 1});
  EXPECT_TRUE(later.ok()) << n << ": " << later.status().to_string();
  if (!later.ok()) return false;
  EXPECT_EQ((*later)[0].output_ids, right[2].output_ids) << "the later one, " << n;
  return failed[0] && !failed[1];
}

inline std::size_t threads_of_process() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

// Returns the number of threads, once it is `enough` or 10 seconds have passed. The kernel still lists a thread for a
// moment after it was joined.
template <class Enough>
std::size_t threads_once(const Enough& enough) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::size_t count = threads_of_process();
  while (!enough(count) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    count = threads_of_process();
  }
  return count;
}

// Checks after each test that no thread is left.
class FaultyRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    plans = {};
    right_tokens(faulty_options(faulty_registry(), 1));  // must run before another engine's devices are recorded
    right_family(faulty_options(faulty_registry(), 1));
    std::size_t last = 0;
    int unchanged = 0;
    before_ = threads_once([&](std::size_t count) {
      unchanged = count == last ? unchanged + 1 : 0;
      last = count;
      return unchanged == 10;
    });
  }
  void TearDown() override {
    EXPECT_EQ(threads_once([this](std::size_t count) { return count == before_; }), before_);
  }

 private:
  std::size_t before_ = 0;
};

}  // namespace tessera::testing
