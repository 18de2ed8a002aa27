// Makes entries of an importance matrix from a weight's inputs. For each column, the squares of the inputs are summed
// over a text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/gguf/importance_matrix.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// The kind of a weight whose inputs are observed: a linear's matrix, or one of the two weights that hold the matrices
// of all experts of a layer.
enum class ObservedWeight : std::uint8_t { kLinear, kExpertsGateUp, kExpertsDown };

struct ObservedInput {
  std::string weight;  // name of the weight's values (WeightSpec::name)
  ObservedWeight kind = ObservedWeight::kLinear;
  std::vector<double> sums;    // [counts, columns]: sum of the squares of each column
  std::vector<double> counts;  // rows that were added up; one element, or one for each expert
};

// Returns the entries of an importance matrix for the inputs. The entries have the names and the order of columns of
// GGUF files. The columns of zeros that pad an input are left out. `weights` are those of the model's graphs, and
// `file` names the config in messages. Returns unimplemented for a family without GGUF files and for a tensor that GGUF
// files do not have; invalid_argument for sums that are not finite. The messages name the tensor.
Result<std::vector<ImportanceEntry>> importance_of_inputs(const ModelConfig& config, const std::string& file,
                                                          std::span<const WeightSpec> weights,
                                                          std::span<const ObservedInput> inputs);

}  // namespace tessera
