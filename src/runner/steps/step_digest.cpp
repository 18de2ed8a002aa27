#include "tessera/runner/steps/step_digest.h"

#include <algorithm>
#include <cstring>

namespace tessera {
namespace {

constexpr std::uint64_t kStart = 0x9e3779b97f4a7c15;

// Hashes 8 bytes at a time. The multiplication spreads a difference to higher bits, and the shift spreads it to lower
// bits.
template <class T>
std::uint64_t add(std::uint64_t hash, std::span<const T> values) {
  const std::span<const std::byte> bytes = std::as_bytes(values);
  hash = (hash ^ bytes.size()) * kStart;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof(word), bytes.size() - at));
    hash = (hash ^ word) * kStart;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

std::uint64_t digest_of(std::span<const float> logits, std::span<const float> hidden_states) {
  return add(add(kStart, logits), std::span<const float>(hidden_states));
}

std::uint64_t digest_of(std::uint64_t filled, const StepOutputs& outputs) {
  return add(add(add(add(filled, outputs.sampled), outputs.logprobs), outputs.top_ids), outputs.top_logprobs);
}

}  // namespace tessera
