// Catches: heap allocation on the way of a decode step, which costs time and, over days, memory.
//
// A program of its own, because it replaces operator new for the whole process.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tessera/engine/engine.h"
#include "test_paths.h"

namespace {

std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = alignment > alignof(std::max_align_t)
                     ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                     : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tessera {
namespace {

class SteadyDecode : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, SteadyDecode, ::testing::Bool(),
                         [](const auto& overlap) { return overlap.param ? "ahead" : "in_step"; });

TEST_P(SteadyDecode, AllocatesNothingInAThousandSteps) {
  constexpr int kSteps = 1000;
  EngineOptions options{.model_path = testing::data_path("goldens/llama/config.json"),
                        .device = testing::test_device_name(),
                        .dtype = "float32",
                        .load_format = LoadFormat::kDummy};
  options.context_length = 1200;
  options.chunked_prefill_size = 64;
  options.max_running_requests = 4;
  options.random_seed = 1;
  options.graphs.piecewise_tokens = {16, 64};
  options.overlap_schedule = GetParam();
  auto engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  for (std::int32_t i = 0; i < 3; ++i) {
    Request request{.prompt = {TokenId(i + 1), TokenId(5)},
                    .stop = {.max_new_tokens = kSteps + 150, .ignore_eos = true}};
    if (i == 1) request.sampling = {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 3};
    ASSERT_TRUE((*engine)->submit(std::move(request)).ok());
  }
  // Prompts, and a few steps in which every buffer finds its size.
  for (int i = 0; i < 50; ++i) ASSERT_TRUE((*engine)->step().ok());
  const std::int64_t before = allocations;
  std::size_t tokens = 0;
  for (int i = 0; i < kSteps; ++i) {
    const Result<std::span<RequestEvent>> events = (*engine)->step();
    ASSERT_TRUE(events.ok());
    tokens += events->size();
  }
  EXPECT_EQ(allocations - before, 0);
  EXPECT_EQ(tokens, 3u * kSteps);
}

}  // namespace
}  // namespace tessera
