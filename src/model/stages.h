// The part of a body that one stage of a pipeline runs: neighbouring layers. The stage receives the values that it
// needs from earlier layers, and sends the values that later layers need (ops/collective/stage_exchange.h).
//
//   stage 0    %h = embedding(…)  layers 0 …                     send_to_next(mut %h)
//   stage 1    %h = empty  receive_from_previous(mut %h)  layers … → %hidden
//
// A body is cut where a layer begins. Every value that is made before the cut and read after it crosses the cut: the
// hidden state, and whatever else a family carries from layer to layer. Values that depend only on inputs and
// constants, such as tables of rotations, are computed in every stage that reads them.
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

// Returns the stage's layers when `layers` are divided into `stages` parts that are as equal as possible. Precondition:
// 1 <= stages <= layers.
LayerRange layers_of_stage(std::int64_t layers, int stage, int stages);

struct BodyCuts {
  std::span<const std::size_t> layer_starts;                 // [layers]: the first node of each layer
  std::function<bool(std::string_view weight)> is_constant;  // whether the config alone determines it
};

// Takes a stage from a body with one output [T, N]. The part has all of the body's inputs, its cache groups with only
// the stage's own layers, and one output with the body's name: the body's own output in the last stage, in other stages
// the value of that type that is sent. kUnimplemented if a layer reads the cache of a layer in another stage, or if a
// value to be sent has no rows of tokens.
Result<ir::Graph> take_stage(const ir::Graph& body, const LayerRange& layers, const BodyCuts& cuts);

}  // namespace tessera
