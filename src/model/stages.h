// The part of a body that one stage of a pipeline runs: neighbouring layers, what they need of the layers before them
// as values that are received, and what later layers need as values that are sent (ops/comm/pipeline.h).
//
//   stage 0    %h = embedding(…)  layers 0 …                     send_to_next(mut %h)
//   stage 1    %h = empty  receive_from_previous(mut %h)  layers … → %hidden
//
// A body is cut where a layer begins. All values cross that were made before and are read behind: the hidden state, and
// whatever else a family carries from layer to layer. What follows from inputs and constants alone, such as tables of
// rotations, is computed in every stage that reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"

namespace tessera {

struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Of `layers` in `stages` parts, as equal as they can be, the stage's. Precondition: 1 <= stages <= layers.
LayerRange layers_of_stage(std::int64_t layers, int stage, int stages);

struct BodyCuts {
  std::span<const std::size_t> layer_starts;                 // [layers]: the node with which each begins
  std::function<bool(std::string_view weight)> is_constant;  // whether the config alone determines it
};

// Of a body with one output [T, N]. The part has all of its inputs and cache groups, with the stage's own layers in
// them, and one output of the same name: the body's own, or of a stage that is not the last what it sends of that type.
// kUnimplemented where a layer reads the cache of a layer in another stage, or sends what has no rows of tokens.
Result<ir::Graph> take_stage(const ir::Graph& body, const LayerRange& layers, const BodyCuts& cuts);

}  // namespace tessera
