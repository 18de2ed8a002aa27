// Hashes a forward's results, so that ranks can check that their results have the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/runner/forward_inputs.h"

namespace tessera {

// Hashes the results that submit() fills in.
std::uint64_t digest_of(std::span<const float> logits, std::span<const float> hidden_states);
// Hashes the results of collect(). Starts from `filled`, which is the hash of the results that submit() filled in.
std::uint64_t digest_of(std::uint64_t filled, const StepOutputs& outputs);

}  // namespace tessera
