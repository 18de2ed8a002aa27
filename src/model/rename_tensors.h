// Renames the tensors from which weights are made.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Replaces every tensor name n in the part, or in all parts of the weights, by name(n). This includes the names of
// tensors with scales and shapes, and the names in WeightPart::beside. The weights keep their own names.
void rename_tensors(const std::function<std::string(const std::string&)>& name, WeightPart& part);
void rename_tensors(const std::function<std::string(const std::string&)>& name, std::vector<WeightSpec>& weights);

}  // namespace tessera
