// Lists the tensors that a checkpoint has besides the weights of the model: vision towers, heads that predict further
// tokens.
#pragma once

#include <span>
#include <string>

#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Returns the tensors from which no weight of any rank is made, for a log: "model.visual.* (153), mtp.* (15)". They are
// grouped by the prefix of their names that no other tensor shares. Empty if all are read.
std::string unread_tensors(const Checkpoint& checkpoint, std::span<const WeightSpec> specs);

}  // namespace tessera
