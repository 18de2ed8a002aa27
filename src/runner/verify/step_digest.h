// A hash of what a forward came to, by which ranks see that they hold the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/runner/forward_inputs.h"

namespace tessera {

// Of what submit() fills in.
std::uint64_t digest_of(std::span<const float> logits, std::span<const float> hidden_states);
// That, and what collect() gives.
std::uint64_t digest_of(std::uint64_t filled, const StepOutputs& outputs);

}  // namespace tessera
