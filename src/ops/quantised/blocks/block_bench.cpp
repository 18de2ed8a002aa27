// Times products with matrices of GGUF's blocks on this machine's CPU:
//
//   block_bench [THREADS [TYPE …]]      two threads and Q4_K, Q6_K, Q8_0 and others by default
//
// It prints a line for each type and shape. For one row of x it prints the GB/s at which products read weights, and the
// GB/s at which the same threads read memory to add up its words (the plain sum). For 128 rows it prints 10^9
// operations per second. Each product uses the next of several matrices, which have 384 MiB in all, so that its weights
// are not in the caches. Runs of products and of plain sums alternate. Each figure is from the fastest of several runs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/quantised/blocks/block_kernels.h"
#include "tessera/ops/quantised/blocks/block_linear.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera {
namespace {

constexpr std::int64_t kBytesInTurn = std::int64_t{384} << 20;
constexpr std::int64_t kManyRows = 128;
constexpr int kRuns = 15;

struct Shape {
  const char* name;
  std::int64_t n, k;
};
constexpr Shape kShapes[] = {{"4096 x 4096", 4096, 4096},   {"0.6B gate and up", 6144, 1024},
                             {"0.6B down", 1024, 3072},     {"0.6B head", 151936, 1024},
                             {"4B q, k and v", 6144, 2560}, {"4B gate and up", 19456, 2560},
                             {"4B down", 2560, 9728}};
constexpr BlockType kTypes[] = {BlockType::kQ8_0, BlockType::kQ4_0,   BlockType::kQ4_K, BlockType::kQ5_K,
                                BlockType::kQ6_K, BlockType::kIQ4_XS, BlockType::kMXFP4};

double seconds(const auto& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TESSERA_CPU_CLONES std::uint64_t sum_of(const std::uint64_t* words, std::int64_t count) {
  std::uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

// Fills memory with bytes that are valid both as codes and as finite scales.
void fill(std::span<std::uint8_t> memory) {
  std::uint32_t state = 1;
  for (std::uint8_t& byte : memory) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(state >> 25U & 0x3bU);
  }
}

struct Bench {
  Stream& stream;
  std::span<std::uint8_t> memory;
  std::int64_t threads;
  std::uint64_t sink = 0;

  // For one row, returns the bytes of weights that are read per second. For more rows, returns the operations per
  // second. Sets `plain` to the bytes per second of the plain sum.
  Result<double> run(BlockType type, const Shape& shape, std::int64_t rows, double& plain) {
    BlockMatrix w{.type = type, .rows = shape.n, .cols = shape.k, .data = nullptr};
    const std::int64_t bytes = w.rows * w.row_bytes();
    const std::int64_t matrices = std::max<std::int64_t>(1, static_cast<std::int64_t>(memory.size()) / bytes);
    std::vector<BFloat16> x(static_cast<std::size_t>(rows * shape.k), from_float<BFloat16>(0.5F));
    std::vector<BFloat16> y(static_cast<std::size_t>(rows * shape.n));
    QuantisedProblem p;
    p.w.format = {.values = QuantisedFormat::Values::kBlocks, .blocks = type};
    p.w.rows = p.n = shape.n;
    p.w.cols = p.k = shape.k;
    p.x = reinterpret_cast<const std::byte*>(x.data());
    p.y = reinterpret_cast<std::byte*>(y.data());
    p.m = rows;
    p.dtype = ir::DType::kBFloat16;
    p.workers = threads;
    std::vector<std::byte> workspace(block_linear_workspace(p) + 64);
    p.workspace = workspace.data() + (64 - reinterpret_cast<std::uintptr_t>(workspace.data()) % 64) % 64;
    std::vector<std::unique_ptr<BoundOp>> bound;
    for (std::int64_t i = 0; i < matrices; ++i) {
      p.w.values = memory.data() + i * bytes;
      bound.push_back(TRY(bind_block_linear(p)));
      if (rows > 1 && i == 3) break;  // arithmetic limits the speed, not memory, so a few matrices suffice
    }
    double best = 1e9;
    double best_sum = 1e9;
    for (int i = 0; i < kRuns; ++i) {
      best_sum = std::min(best_sum, seconds([&] { sink += sum_all(); }));
      Status status;
      best = std::min(best, seconds([&] {
                        for (const auto& op : bound) status = status.ok() ? op->enqueue(stream) : status;
                        if (status.ok()) status = stream.synchronize();
                      }));
      TRY(std::move(status));
    }
    plain = static_cast<double>(memory.size()) / best_sum;
    const auto calls = static_cast<double>(bound.size());
    if (rows == 1) return calls * static_cast<double>(bytes) / best;
    return calls * 2 * static_cast<double>(rows * shape.n * shape.k) / best;
  }

  std::uint64_t sum_all() const {
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
    const auto words = static_cast<std::int64_t>(memory.size() / 8);
    parallel_for(threads, 1, [&](std::int64_t thread, std::int64_t) {
      const std::int64_t first = words * thread / threads;
      sums[static_cast<std::size_t>(thread)] =
          sum_of(reinterpret_cast<const std::uint64_t*>(memory.data()) + first, words * (thread + 1) / threads - first);
    });
    return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
  }
};

Status run(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2;
  std::vector<BlockType> types;
  for (int i = 2; i < argc; ++i) {
    const BlockTypeInfo* info = find_block_type(std::string_view(argv[i]));
    if (info == nullptr || packed_layout(info->type) == nullptr)
      return invalid_argument(fmt::format("\"{}\" is no type with a packed form, such as Q4_K", argv[i]));
    types.push_back(info->type);
  }
  if (types.empty()) types.assign(std::begin(kTypes), std::end(kTypes));
  set_worker_threads(threads);
  const std::unique_ptr<CpuDevice> device = TRY(CpuDevice::create({.threads = threads}));
  const std::unique_ptr<Stream> stream = TRY(device->create_stream("bench"));
  const std::unique_ptr<Allocation> allocation = TRY(device->allocate(kBytesInTurn, "weights"));
  const std::span memory(reinterpret_cast<std::uint8_t*>(allocation->data().raw()), kBytesInTurn);
  fill(memory);
  Bench bench{*stream, memory, threads};
  fmt::print("{} threads, {}\n{:8} {:18} {:>9} {:>9} {:>6} {:>9}\n", threads, blocks::block_kernels().name, "type",
             "shape", "1: GB/s", "sum: GB/s", "ratio", "128: Gop/s");
  for (const BlockType type : types)
    for (const Shape& shape : kShapes) {
      double plain = 0;
      double unused = 0;
      const double few = TRY(bench.run(type, shape, 1, plain));
      const double many = TRY(bench.run(type, shape, kManyRows, unused));
      fmt::print("{:8} {:18} {:9.1f} {:9.1f} {:6.2f} {:9.0f}\n", block_type_info(type).name, shape.name, few * 1e-9,
                 plain * 1e-9, few / plain, many * 1e-9);
      std::fflush(stdout);
    }
  return ok_status();
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const tessera::Status status = tessera::run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "block_bench: %s\n", status.message().c_str());
  return 1;
}
