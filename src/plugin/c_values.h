// Converts types, nodes and tensors to the structs of tessera_plugin.h and back.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// Converts a type to C. Returns kInvalidArgument for a rank above TESSERA_PLUGIN_MAX_RANK and for dimensions beyond 64
// bits.
Result<tessera_plugin_type> to_c(const ir::Type& type);
// Converts a type from C. Returns kInvalidArgument for an unknown dtype, a rank out of range, or a divisor below 1.
Result<ir::Type> from_c(const tessera_plugin_type& c);
// Returns the type of a view. All dimensions of this type are numbers, not symbols.
tessera_plugin_type type_of(const TensorView& view);

tessera_plugin_address to_c(DeviceAddress address);
DeviceAddress from_c(tessera_plugin_address address);
tessera_plugin_tensor to_c(const TensorView& view);

// Converts a node's attributes. Borrows the node.
std::vector<tessera_plugin_attribute> to_c(const std::vector<std::pair<std::string, ir::Attribute>>& attributes);
// Returns the attributes sorted by name. Returns kInvalidArgument for a null name or string, or an unknown kind.
Result<std::vector<std::pair<std::string, ir::Attribute>>> from_c(const tessera_plugin_attribute* attributes,
                                                                  std::size_t count);

// A node with the types of its operands, in the form of tessera_plugin.h. Borrows the node.
class CNode {
 public:
  CNode(const ir::Node& node, std::vector<tessera_plugin_type> operands);
  CNode(const CNode&) = delete;
  CNode& operator=(const CNode&) = delete;
  static Result<std::vector<tessera_plugin_type>> types(std::span<const ir::Type> operands);

  const tessera_plugin_node* get() const { return &node_; }

 private:
  std::vector<tessera_plugin_attribute> attributes_;
  std::vector<tessera_plugin_type> operands_;
  tessera_plugin_node node_;
};

}  // namespace tessera::plugin
