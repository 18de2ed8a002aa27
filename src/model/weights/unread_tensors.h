// What a checkpoint has beside the weights of the model: vision towers, heads that predict further tokens.
#pragma once

#include <span>
#include <string>

#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// The tensors that no weight is made of on any rank, by the beginning of their names that no other tensor shares, for a
// log: "model.visual.* (153), mtp.* (15)". Empty where all are read.
std::string unread_tensors(const Checkpoint& checkpoint, std::span<const WeightSpec> specs);

}  // namespace tessera
