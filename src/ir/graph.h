// A forward as a graph: its values, its nodes in execution order, its inputs and its states.
//
// Each value is assigned once, except for *mutated* operands. A node may write into an operand (`mut %out`), and every
// later node then reads the new content. Nodes are therefore executed in the order of the list.
//
// Values come from outside or from a node:
//   input   a static input buffer, rewritten before every forward        %input_ids: i32[T]
//   weight  a parameter of the checkpoint, constant                      "model.norm.weight"
//   state   memory that outlives a forward: a layer's keys and values    %k_cache.0: bf16[P, 16, 8, 128]
//   result  made by a node of this graph
//
// Copying a Graph object copies the whole graph. The class is not thread-safe while a graph changes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/ir/type.h"

namespace tessera::ir {

using ValueId = StrongId<struct ValueIdTag, std::int32_t>;  // index into Graph::values
using NodeId = StrongId<struct NodeIdTag, std::int32_t>;    // index into Graph::nodes
inline constexpr NodeId kNoNode{-1};

enum class ValueKind : std::uint8_t { kInput, kWeight, kState, kResult };
std::string_view value_kind_name(ValueKind kind);  // "input" "weight" "state" "result"

struct Value {
  std::string name;  // unique in the graph; identifies inputs, weights and states
  Type type = {};
  ValueKind kind = ValueKind::kResult;
  NodeId producer = kNoNode;  // the node that makes a result
};

using Attribute = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;

struct Node {
  std::string op;
  std::vector<ValueId> operands = {};
  std::vector<bool> mutates = {};  // for each operand, whether the node writes it
  std::vector<ValueId> results = {};
  std::vector<std::pair<std::string, Attribute>> attributes = {};  // sorted by name

  const Attribute* find_attribute(std::string_view name) const;
  // Returns the attribute's value, or `fallback` if the attribute is absent. Precondition: a present attribute has the
  // type of `fallback`.
  bool attribute_or(std::string_view name, bool fallback) const;
  std::int64_t attribute_or(std::string_view name, std::int64_t fallback) const;
  double attribute_or(std::string_view name, double fallback) const;
};

// A group of layers whose caches retain tokens by the same rule. The layers share slots, a page table and a pool of
// pages. A state belongs to group i if its first dimension is page_symbol(i). The size of a page follows from the types
// of the group's states.
struct CacheGroup {
  enum class Kind : std::uint8_t {
    kPaged,   // keys and values of every token of a sequence
    kWindow,  // keys and values of the last `window` tokens; older pages go back to the pool
    kLatent,  // one compressed row for every token, in pages like kPaged
    // Each sequence has one slot, whatever its length. At position 0 operators start from zeros instead of reading the
    // slot. When a sequence fills a page of tokens, its slot can be copied to another slot, from which another sequence
    // continues.
    kState,
  };
  std::string name;  // for example "full" or "window.4096"
  Kind kind = Kind::kPaged;
  // With kWindow, the number of tokens that a token attends to, including itself. 0 for other kinds.
  std::int64_t window = 0;
  std::vector<std::int64_t> layers = {};
  friend bool operator==(const CacheGroup&, const CacheGroup&) = default;
};
std::string_view cache_group_kind_name(CacheGroup::Kind kind);  // "paged" "window" "latent" "state"
// Returns the index of the cache group whose page symbol is the type's first dimension. Returns nothing if the value is
// not part of a cache.
std::optional<std::size_t> cache_group_of(const Type& type);

struct Graph {
  std::string name;
  std::vector<Value> values = {};
  std::vector<Node> nodes = {};      // in execution order
  std::vector<ValueId> inputs = {};  // in declaration order, like the next two lists
  std::vector<ValueId> weights = {};
  std::vector<ValueId> states = {};
  std::vector<ValueId> outputs = {};
  std::vector<CacheGroup> cache_groups = {};

  const Value& value(ValueId id) const { return values[id.index()]; }
  Value& value(ValueId id) { return values[id.index()]; }
  const Node& node(NodeId id) const { return nodes[id.index()]; }
  const Value* find_value(std::string_view value_name) const;
  Result<Type> type_of(std::string_view value_name) const;  // kInternal if there is no such value
};

// Returns whether the graphs have the same name, declarations, nodes, outputs and cache groups in the same order.
// Values are compared by name and type, and their ids may differ. Doubles are compared bit by bit, except that all NaNs
// are equal. Accepts any graph, even if verify() returns an error for it.
bool structurally_equal(const Graph& a, const Graph& b);

}  // namespace tessera::ir
