// The stitching graph: a forward cut into parts that run one after another. A *piece* is compiled and captured as one
// graph. A *split op* is a single operator that runs between the graphs of two pieces. Values that cross a cut are in
// slots of the whole forward; each part's graph refers to them by its own value ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"

namespace tessera {

// A value of the whole forward.
struct Slot {
  std::string name;
  ir::Type type;
  ir::ValueKind kind = ir::ValueKind::kResult;
};

struct Part {
  enum class Kind : std::uint8_t { kPiece, kSplitOp };
  Kind kind = Kind::kPiece;
  std::string name;  // "piece 0", "split op 1: attention"
  // Values that the part reads from other parts are its inputs; values that other parts read from it are its outputs.
  ir::Graph graph;
  std::vector<std::int32_t> slots;  // [graph.values.size()]: index into StitchingGraph::slots
};

struct StitchingGraph {
  std::string name;
  std::vector<Slot> slots;
  std::vector<Part> parts;            // in execution order
  std::vector<std::int32_t> outputs;  // slots, in the order of the source graph's outputs
  std::vector<ir::CacheGroup> cache_groups;
  std::vector<std::string> notes;  // cuts that were not requested, one sentence each
  bool capturable = true;          // false if an operator must not be captured

  std::int64_t num_pieces() const;
  std::int64_t num_split_ops() const;
};

std::string_view part_kind_name(Part::Kind kind);  // "piece" "split_op"

// Formats one paragraph for each part, with its operators, inputs and outputs; then the notes.
std::string to_text(const StitchingGraph& graph);

}  // namespace tessera
