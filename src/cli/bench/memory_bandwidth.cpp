#include "tessera/cli/bench/memory_bandwidth.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>

#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu/cpu_math.h"

namespace tessera::cli {
namespace {

constexpr int kPasses = 6;
constexpr std::int64_t kLeastBytes = std::int64_t{1} << 30;
constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;

// Sums four quarters of the words concurrently, because a matmul also reads several columns at the same time. On some
// processors a single sequential read does not reach the memory's full rate.
TESSERA_CPU_CLONES std::uint64_t sum(const std::uint64_t* words, std::int64_t count) {
  constexpr std::int64_t kPlaces = 4;
  constexpr std::int64_t kLanes = 8;
  std::array<std::array<std::uint64_t, kLanes>, kPlaces> sums{};
  const std::int64_t quarter = count / kPlaces / kLanes * kLanes;
  for (std::int64_t i = 0; i < quarter; i += kLanes)
    for (std::size_t place = 0; place < kPlaces; ++place)
#pragma omp simd
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        sums[place][lane] += words[static_cast<std::size_t>(quarter) * place + static_cast<std::size_t>(i) + lane];
  std::uint64_t total = 0;
  for (const auto& lanes : sums) total = std::accumulate(lanes.begin(), lanes.end(), total);
  return std::accumulate(words + kPlaces * quarter, words + count, total);
}

Result<MemoryBandwidth> measure_copies(Device& device) {
  constexpr std::size_t kBytes = kLeastBytes / 2;
  const std::unique_ptr<Allocation> from = TRY(device.allocate(kBytes, "bandwidth test"));
  const std::unique_ptr<Allocation> to = TRY(device.allocate(kBytes, "bandwidth test"));
  const std::unique_ptr<Event> begin = TRY(device.create_event(EventKind::kTime));
  const std::unique_ptr<Event> end = TRY(device.create_event(EventKind::kTime));
  const std::unique_ptr<Stream> stream = TRY(device.create_stream("bandwidth test"));
  TRY(stream->fill(from->data(), 0x5a, kBytes));
  MemoryBandwidth best{.bytes = 2 * kBytes, .bytes_per_second = 0};
  for (int pass = 0; pass < kPasses; ++pass) {
    TRY(stream->record(*begin));
    TRY(stream->copy(to->data(), from->data(), kBytes));
    TRY(stream->record(*end));
    TRY(stream->synchronize());
    const double milliseconds = TRY(end->milliseconds_since(*begin));
    best.bytes_per_second = std::max(best.bytes_per_second, 1e3 * static_cast<double>(best.bytes) / milliseconds);
  }
  return best;
}

// Measures reads of memory that is allocated like weights. Its memory pages then have the size of the weights' pages,
// which affects the rate.
Result<MemoryBandwidth> measure_reads(Device& device) {
  const std::int64_t cache = std::max<std::int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  const std::int64_t bytes = std::clamp(4 * cache, kLeastBytes, kMostBytes);
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(std::uint64_t));
  const std::unique_ptr<Allocation> memory = TRY(device.allocate(static_cast<std::size_t>(bytes), "bandwidth test"));
  auto* const words = reinterpret_cast<std::uint64_t*>(memory->data().raw());
  parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) { std::fill(&words[begin], &words[end], 1); });

  MemoryBandwidth best{.bytes = bytes, .bytes_per_second = 0};
  for (int pass = 0; pass < kPasses; ++pass) {
    std::atomic<std::uint64_t> total{0};
    const auto start = std::chrono::steady_clock::now();
    parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) { total += sum(words + begin, end - begin); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (total != static_cast<std::uint64_t>(count)) return internal_error("memory read back differently");
    best.bytes_per_second = std::max(best.bytes_per_second, static_cast<double>(bytes) / seconds);
  }
  return best;
}

}  // namespace

Result<MemoryBandwidth> measure_memory_bandwidth(Device& device) {
  return device.properties().on_host ? measure_reads(device) : measure_copies(device);
}

}  // namespace tessera::cli
