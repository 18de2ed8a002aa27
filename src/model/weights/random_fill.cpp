#include "tessera/model/weights/random_fill.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/base/float16.h"
#include "tessera/base/hash.h"

namespace tessera {
namespace {

constexpr std::int64_t kPerWord = 4;  // elements that are made from one 64-bit random word
constexpr std::int64_t kBlockElements = 1024;
constexpr std::int64_t kParallelFill = 1 << 16;

// Returns SplitMix64's output (Steele, Lea, Flood, OOPSLA 2014) at counter `index`.
std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Fills the elements `first` … `first` + `count` - 1 of a tensor. `dst` points to the first of them. Precondition:
// count <= kBlockElements.
void fill_block(std::byte* dst, StoredDtype dtype, std::int64_t first, std::int64_t count, std::uint64_t seed,
                float step) {
  std::array<std::uint64_t, kBlockElements / kPerWord + 1> words;
  const std::int64_t first_word = first / kPerWord;
  const std::int64_t skip = first % kPerWord;
  const std::int64_t num_words = (skip + count + kPerWord - 1) / kPerWord;
  for (std::int64_t i = 0; i < num_words; ++i) {
    words[static_cast<std::size_t>(i)] = random_word(seed, static_cast<std::uint64_t>(first_word + i));
  }
  std::array<std::int16_t, kBlockElements> steps;
  std::memcpy(steps.data(), reinterpret_cast<const std::byte*>(words.data()) + skip * 2,
              static_cast<std::size_t>(count) * 2);
  const auto each = [&](auto encode) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = encode(static_cast<float>(steps[static_cast<std::size_t>(i)]) * step);
      std::memcpy(dst + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
    }
  };
  switch (dtype) {
    case StoredDtype::kF32: return each([](float v) { return v; });
    case StoredDtype::kF16: return each([](float v) { return from_float<Float16>(v).bits; });
    default: return each([](float v) { return from_float<BFloat16>(v).bits; });
  }
}

// Fills the elements of the runs. Precondition: dst holds runs.num_elements() elements.
void fill_runs(std::byte* dst, StoredDtype dtype, const SliceRuns& runs, std::uint64_t seed, float scale) {
  const std::int64_t bytes = stored_dtype_bytes(dtype);
  const std::int64_t cuts = (runs.run + kBlockElements - 1) / kBlockElements;
  const std::int64_t blocks = runs.num_runs * cuts;
  const float step = scale / 32768.0f;
#pragma omp parallel for schedule(static) if (runs.num_elements() > kParallelFill)
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t row = block / cuts;
    const std::int64_t at = block % cuts * kBlockElements;
    const std::int64_t count = std::min(kBlockElements, runs.run - at);
    fill_block(dst + (row * runs.run + at) * bytes, dtype, runs.start + row * runs.stride + at, count, seed, step);
  }
}

Status check_dtype(StoredDtype dtype) {
  if (is_weight_dtype(dtype)) return ok_status();
  return invalid_argument(fmt::format("random weights of type {}; accepted: F32, F16, BF16", stored_dtype_name(dtype)));
}

}  // namespace

std::uint64_t tensor_seed(std::uint64_t seed, std::string_view tensor_name) {
  Hasher hasher;
  hasher.add(seed);
  hasher.add(tensor_name);
  return hasher.finish().low;
}

Status fill_random(std::span<std::byte> dst, StoredDtype dtype, std::span<const std::int64_t> shape,
                   const TensorSlice& slice, std::uint64_t seed, float scale) {
  const SliceRuns runs = TRY(slice_runs(shape, slice));
  return fill_random_runs(dst, dtype, runs, seed, scale);
}

Status fill_random_runs(std::span<std::byte> dst, StoredDtype dtype, const SliceRuns& runs, std::uint64_t seed,
                        float scale) {
  TRY(check_dtype(dtype));
  const std::int64_t bytes = runs.num_elements() * stored_dtype_bytes(dtype);
  if (static_cast<std::int64_t>(dst.size()) != bytes) {
    return invalid_argument(fmt::format("random fill of {} bytes; accepted: {} for {} elements of {}", dst.size(),
                                        bytes, runs.num_elements(), stored_dtype_name(dtype)));
  }
  fill_runs(dst.data(), dtype, runs, seed, scale);
  return ok_status();
}

void fill_random_bytes(std::span<std::byte> dst, std::int64_t first, std::uint64_t seed) {
  constexpr std::int64_t kBytes = sizeof(std::uint64_t);
  for (std::size_t i = 0; i < dst.size();) {
    const std::int64_t at = first + static_cast<std::int64_t>(i);
    std::uint64_t word = random_word(seed, static_cast<std::uint64_t>(at / kBytes)) >> (at % kBytes * 8);
    for (std::int64_t left = kBytes - at % kBytes; left > 0 && i < dst.size(); --left, ++i, word >>= 8)
      dst[i] = static_cast<std::byte>(word);
  }
}

}  // namespace tessera
