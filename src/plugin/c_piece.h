// Converts a piece's graph to the form that a plugin's compiler reads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// A piece in the form of the structs in tessera_plugin.h. Borrows `piece` and `device`, which must outlive the object.
class CPiece {
 public:
  static Result<CPiece> create(const ir::Graph& piece, const std::string& device, bool deterministic);
  const tessera_plugin_piece* get() const { return &data_->piece; }

 private:
  struct Node {
    std::vector<tessera_plugin_attribute> attributes;
    std::vector<std::int32_t> operands;
    std::vector<std::int32_t> mutates;
    std::vector<std::int32_t> results;
  };
  struct Data {
    std::string text;
    std::vector<tessera_plugin_value> values;
    std::vector<Node> of_nodes;
    std::vector<tessera_plugin_piece_node> nodes;
    tessera_plugin_piece piece{};
  };
  explicit CPiece(std::unique_ptr<Data> data) : data_(std::move(data)) {}
  std::unique_ptr<Data> data_;  // on the heap, because its members point to one another
};

}  // namespace tessera::plugin
