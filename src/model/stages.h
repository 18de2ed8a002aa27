// Cuts a body (a model's graph without the LM head, model.h) into the stages of a pipeline. A stage consists of
// consecutive layers. It receives the values that it needs from earlier layers, and sends the values that later layers
// need (ops/collective/stage_exchange.h).
//
//   stage 0    %h = embedding(…)  layers 0 …                     send_to_next(mut %h)
//   stage 1    %h = empty  receive_from_previous(mut %h)  layers … → %hidden
//
// A body is cut at the beginning of a layer. Every value that is made before the cut and read after it must be sent:
// the hidden state, and other values that a family passes from layer to layer. Values that depend only on inputs and
// constants, such as rotation tables, are not sent but computed in every stage that reads them.
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

// Returns the layers of one stage if `layers` layers are divided into `stages` stages of nearly equal size. `stage` is
// the index of the stage. Precondition: 1 <= stages <= layers.
LayerRange layers_of_stage(std::int64_t layers, int stage, int stages);

struct BodyCuts {
  std::span<const std::size_t> layer_starts;                 // [layers]: index of each layer's first node
  std::function<bool(std::string_view weight)> is_constant;  // whether the weight is computed from the config alone
};

// Cuts a stage out of a body with one output [T, N]. The result has all inputs of the body, the body's cache groups
// without the layers of other stages, and one output with the name of the body's output. In the last stage the output
// is the body's output. In other stages the output is one of the sent values: the last one that has the type of the
// body's output. Returns kUnimplemented if a layer reads the cache of a layer in another stage, or if a value to be
// sent does not have one row for each token.
Result<ir::Graph> take_stage(const ir::Graph& body, const LayerRange& layers, const BodyCuts& cuts);

}  // namespace tessera
