// The code of a model uses this builder to make the graph of a forward. Every call checks operands and attributes
// against the operator's declaration and infers result types. After the first error, later calls do nothing. Model code
// therefore reads like a formula, and checks for errors only once, in finish().
//
//   GraphBuilder b("llama", ops);
//   ValueId ids = b.input("input_ids", {DType::kInt32, {Symbol::kTokens}});
//   ValueId h = b.op("embedding", {ids, b.weight("model.embed_tokens.weight", {dtype, {vocab, hidden}})});
//   b.output(h);
//   ir::Graph graph = TRY(b.finish());
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera::ir {

using Attributes = std::vector<std::pair<std::string, Attribute>>;
inline constexpr std::size_t kMaxResults = 8;  // maximum number of results of one node

class GraphBuilder {
 public:
  // `ops` must outlive the builder.
  GraphBuilder(std::string graph_name, const OpTable& ops);

  // Each of the next three functions declares a value. If a weight is declared again, as for a tied head, the call
  // returns the value of the first declaration. The types must agree.
  ValueId input(std::string name, Type type);
  ValueId weight(std::string name, Type type);
  ValueId state(std::string name, Type type);
  void cache_group(CacheGroup group);

  // Adds a node and returns its only result. Returns {-1} for an operator without results, and after an error.
  ValueId op(std::string_view name, std::vector<ValueId> operands, Attributes attributes = {});
  // Adds a node and returns all of its results. After an error it returns kMaxResults ids {-1}, so that indexing the
  // results is safe.
  std::vector<ValueId> multi_op(std::string_view name, std::vector<ValueId> operands, Attributes attributes = {});

  // Names the results of the following nodes "<scope>.<op>" instead of "<op>". An empty scope_name ends the scope. If a
  // name is already taken, a number is appended.
  void scope(std::string scope_name) { scope_ = std::move(scope_name); }
  void output(ValueId value);
  // Records an error that the caller has found (such as a config that the model cannot express).
  void fail(Status status);

  const Graph& graph() const { return graph_; }
  // Returns the value's type. After an error, type() accepts the id {-1} and returns a scalar's type.
  const Type& type(ValueId value) const;
  bool ok() const { return error_.ok(); }
  // Returns the graph, or the first error, whose message names the graph. The builder is empty afterwards.
  Result<Graph> finish();

 private:
  ValueId declare(std::string name, Type type, ValueKind kind);
  ValueId add_value(std::string name, Type type, ValueKind kind);
  std::string unique_name(std::string_view op);
  Result<std::vector<ValueId>> add_node(std::string_view name, std::vector<ValueId> operands, Attributes attributes);

  const OpTable& ops_;
  Graph graph_;
  Status error_;
  std::string scope_;
  std::unordered_map<std::string, ValueId> values_by_name_;
  std::unordered_map<std::string, int> next_number_;  // the key is a taken name, and the value is its next suffix
};

// Checks that `node` agrees with `decl` in operand count, attribute names and kinds, and mutated operands, and that it
// mutates neither inputs nor weights. Returns the types that its results must have. `node` does not have to be in
// `graph`, but its operands do.
Result<std::vector<Type>> check_node(const OpDecl& decl, const Graph& graph, const Node& node);

}  // namespace tessera::ir
