// A stitching graph is a forward that is cut into parts, which run one after another. A *piece* is compiled and
// captured as one graph. A *split op* is a single operator that runs between the graphs of two pieces. The
// values of the whole forward are numbered once, for all parts together, and these numbers are called slots. The graph
// of a part numbers its values separately, and Part::slots maps each of these value ids to a slot.
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
  std::string name;  // for example "piece 0" or "split op 1: attention"
  // The part as a graph of its own. The graph's inputs are the values that the part reads from other parts. The graph's
  // outputs are the values that other parts read.
  ir::Graph graph;
  std::vector<std::int32_t> slots;  // for each value of `graph`, its index in StitchingGraph::slots
};

struct StitchingGraph {
  std::string name;
  std::vector<Slot> slots;
  std::vector<Part> parts;            // in execution order
  std::vector<std::int32_t> outputs;  // output slots, in the order of the source graph's outputs
  std::vector<ir::CacheGroup> cache_groups;
  std::vector<std::string> notes;  // one sentence for each cut that was not requested
  bool capturable = true;          // false if an operator must not be captured

  std::int64_t num_pieces() const;
  std::int64_t num_split_ops() const;
};

std::string_view part_kind_name(Part::Kind kind);  // "piece" "split_op"

// Formats one paragraph for each part, with its operators, inputs and outputs. The notes follow.
std::string to_text(const StitchingGraph& graph);

}  // namespace tessera
