// Joins the weights of a model's graphs into one list.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Appends `more`, the weights of one more graph, to `weights`. `graph` is that graph's name for messages. Graphs share
// weights that have the same name, as a tied LM head shares the embedding, and a shared weight is loaded once. Returns
// internal_error if two declarations of a shared weight differ in type or in the rows that they read from the
// checkpoint, because one of the graphs would then compute with wrong rows.
Status join_weights(const std::string& graph, std::vector<WeightSpec> more, std::vector<WeightSpec>& weights);

}  // namespace tessera
