// Lists the tensors of a checkpoint that the model does not use, such as those of vision towers and next-token layers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Returns the tensors of GGUF files from which no rank makes a weight (StoredTensor::source), sorted.
std::vector<std::string_view> unread_gguf_tensors(const Checkpoint& checkpoint, std::span<const WeightSpec> specs);

// Returns all tensors from which no rank makes a weight, as text for a log: "model.visual.* (153), mtp.* (15)". The
// tensors are grouped by a prefix of their names: the shortest prefix with which no used tensor's name begins. Returns
// "" if all tensors are used.
std::string unread_tensors(const Checkpoint& checkpoint, std::span<const WeightSpec> specs);

}  // namespace tessera
