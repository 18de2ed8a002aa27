#include "tessera/compile/fused/lower_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tessera {
namespace {

// Returns the number of elements in a row if a value of `shape` is divided into `rows` rows. Returns nothing if the
// rows would not be equally long in every bucket.
std::optional<std::int64_t> row_width(const ir::Shape& shape, const ir::Dim& rows) {
  ir::Dim symbolic(1);
  std::int64_t constant = 1;
  for (const ir::Dim& dim : shape) {
    if (const std::optional<std::int64_t> number = dim.constant()) {
      constant *= *number;
    } else if (symbolic == ir::Dim(1)) {
      symbolic = dim;
    } else {
      return std::nullopt;
    }
  }
  const ir::Dim total = symbolic * constant;
  ir::Bucket some;  // sizes for one example; the comparison below checks all buckets
  some.sizes.fill(5040);
  const Result<std::int64_t> elements = total.evaluate(some);
  const Result<std::int64_t> count = rows.evaluate(some);
  if (!elements.ok() || !count.ok() || *count <= 0 || *elements <= 0 || *elements % *count != 0) return std::nullopt;
  const std::int64_t width = *elements / *count;
  if (rows * width != total) return std::nullopt;
  return width;
}

class Lowering {
 public:
  Lowering(const ir::Graph& graph, std::span<const ir::ValueId> memory) : graph_(graph), memory_(memory) {}

  Result<LoweredGroup> run(std::span<const ir::NodeId> nodes, const std::vector<bool>& stored) {
    for (const ir::NodeId id : nodes) {
      const ir::Node& node = graph_.node(id);
      TRY(add(node).with_context(node.op));
      if (group_.name.find("." + node.op) == std::string::npos) group_.name += "." + node.op;
    }
    for (const ir::NodeId id : nodes)
      for (const ir::ValueId result : graph_.node(id).results)
        if (stored[result.index()]) {
          group_.kernel.stores.push_back({.value = made_.at(result),
                                          .operand = result_operand(group_.results.size()),
                                          .dtype = type(result).dtype});
          group_.results.push_back(result);
        }
    const int operands = static_cast<int>(group_.operands.size());
    for (RowStore& store : group_.kernel.stores)
      if (store.operand < 0) store.operand = operands - 1 - store.operand;
    group_.kernel.num_operands = operands + static_cast<int>(group_.results.size());
    group_.name = "fused" + group_.name;
    if (loads_.empty()) return unimplemented("no rows are read");
    TRY(row_tasks(group_.kernel));
    return std::move(group_);
  }

 private:
  // Returns a temporary negative number for result i. The final numbers of results follow those of the operands, whose
  // count is not known yet.
  static int result_operand(std::size_t i) { return -1 - static_cast<int>(i); }

  const ir::Type& type(ir::ValueId id) const { return graph_.value(id).type; }
  RowKernel& kernel() { return group_.kernel; }

  int push(RowValue value) {
    kernel().values.push_back(std::move(value));
    return static_cast<int>(kernel().values.size()) - 1;
  }

  int operand(ir::ValueId root, bool mutated = false) {
    const auto found = std::find(group_.operands.begin(), group_.operands.end(), root);
    const auto i = static_cast<std::size_t>(found - group_.operands.begin());
    if (found == group_.operands.end()) {
      group_.operands.push_back(root);
      group_.mutates.push_back(false);
    }
    if (mutated) group_.mutates[i] = true;
    return static_cast<int>(i);
  }

  Result<std::int64_t> width(ir::ValueId id) {
    if (kernel().rows == ir::Dim()) {
      if (type(id).shape.empty()) return unimplemented("a scalar has no rows");
      kernel().rows = type(id).shape[0];
    }
    const std::optional<std::int64_t> found = row_width(type(id).shape, kernel().rows);
    if (found) return *found;
    return unimplemented(fmt::format("{} has not {} rows", type(id).to_string(), kernel().rows.to_string()));
  }

  // Returns the index of the row kernel's instruction that makes or loads the value's rows. Returns an error if the
  // type is not floating-point.
  Result<int> row(ir::ValueId id) {
    if (!ir::is_floating_point(type(id).dtype))
      return unimplemented(fmt::format("{} is not floating-point", type(id).to_string()));
    return any_row(id);
  }
  Result<int> any_row(ir::ValueId id) {
    const ir::ValueId root = memory_[id.index()];
    if (const auto made = made_.find(root); made != made_.end()) return made->second;
    if (const auto loaded = loads_.find(root); loaded != loads_.end()) return loaded->second;
    const auto known = std::find(group_.operands.begin(), group_.operands.end(), root);
    if (known != group_.operands.end() && group_.mutates[static_cast<std::size_t>(known - group_.operands.begin())])
      return unimplemented("it reads what the group writes to other rows");
    const std::int64_t elements = TRY(width(id));
    const int load = push({.op = RowOp::kLoad, .dtype = type(id).dtype, .width = elements, .operand = operand(root)});
    return loads_[root] = load;
  }
  // Like any_row(), but returns an error if the group itself makes the value.
  Result<int> outer_row(ir::ValueId id) {
    if (made_.contains(memory_[id.index()]))
      return unimplemented("it reads other rows of a value that the same group computes");
    return any_row(id);
  }
  // Loads a value that consists of a single row. The kernel applies this row to all rows.
  Result<int> repeated(ir::ValueId id) {
    const ir::ValueId root = memory_[id.index()];
    if (made_.contains(root))
      return unimplemented("it applies one row to all rows, and the same group computes that row");
    if (const auto known = repeats_.find(root); known != repeats_.end()) return known->second;
    const RowOp op = graph_.value(root).kind == ir::ValueKind::kWeight ? RowOp::kWeight : RowOp::kRepeat;
    const std::int64_t elements = *type(id).shape.back().constant();
    return repeats_[root] = push({.op = op, .dtype = type(id).dtype, .width = elements, .operand = operand(root)});
  }

  Status compute(const ir::Node& node, RowOp op, std::vector<int> inputs, double number = 0) {
    const std::int64_t elements = TRY(width(node.results[0]));
    RowValue value{.op = op,
                   .dtype = type(node.results[0]).dtype,
                   .width = elements,
                   .inputs = std::move(inputs),
                   .number = number};
    if (op == RowOp::kRotary) value.head_dim = node.attribute_or("head_dim", std::int64_t{0});
    if (op == RowOp::kRmsNorm) value.form = norm_form(node);
    made_[node.results[0]] = push(std::move(value));
    return ok_status();
  }

  Status add(const ir::Node& node) {
    if (node.op == "kv_store") return add_kv_store(node);
    if (node.op == "split") return add_split(node);
    if (node.op == "rotary") return add_rotary(node);
    if (node.op == "add" || node.op == "mul") {
      const int a = TRY(row(node.operands[0]));
      const bool same = type(node.operands[0]) == type(node.operands[1]);
      const int b = same ? TRY(row(node.operands[1])) : TRY(repeated(node.operands[1]));
      return compute(node, node.op == "add" ? RowOp::kAdd : RowOp::kMul, {a, b});
    }
    if (node.op == "rms_norm") {
      const int x = TRY(row(node.operands[0]));
      const int w = TRY(repeated(node.operands[1]));
      if (kernel().values[static_cast<std::size_t>(x)].width % kernel().values[static_cast<std::size_t>(w)].width != 0)
        return unimplemented("a run that is reduced is longer than a row");
      return compute(node, RowOp::kRmsNorm, {x, w}, node.attribute_or("eps", 0.0));
    }
    return add_unary(node);
  }

  Status add_unary(const ir::Node& node) {
    const bool tanh = node.attribute_or("tanh", true);
    if (node.op == "silu") return compute(node, RowOp::kSilu, {TRY(row(node.operands[0]))});
    if (node.op == "gelu")
      return compute(node, tanh ? RowOp::kGeluTanh : RowOp::kGeluErf, {TRY(row(node.operands[0]))});
    if (node.op == "scale")
      return compute(node, RowOp::kScale, {TRY(row(node.operands[0]))}, node.attribute_or("factor", 1.0));
    if (node.op == "softcap")
      return compute(node, RowOp::kSoftcap, {TRY(row(node.operands[0]))}, node.attribute_or("cap", 1.0));
    if (node.op == "cast") return compute(node, RowOp::kCast, {TRY(row(node.operands[0]))});
    if (node.op == "copy") {
      made_[node.results[0]] = TRY(row(node.operands[0]));
      return ok_status();
    }
    return unimplemented("it has no form by rows");
  }

  Status add_split(const ir::Node& node) {
    const int x = TRY(row(node.operands[0]));
    const std::int64_t cols = *type(node.operands[0]).shape.back().constant();
    if (kernel().values[static_cast<std::size_t>(x)].width != cols)
      return unimplemented("what is split is not the whole row");
    std::int64_t offset = 0;
    for (const ir::ValueId result : node.results) {
      const std::int64_t part = TRY(width(result));
      made_[result] =
          push({.op = RowOp::kSlice, .dtype = type(result).dtype, .width = part, .inputs = {x}, .offset = offset});
      offset += part;
    }
    return ok_status();
  }

  Status add_rotary(const ir::Node& node) {
    const int x = TRY(row(node.operands[0]));
    const int table = TRY(outer_row(node.operands[1]));
    const std::int64_t head_dim = node.attribute_or("head_dim", std::int64_t{0});
    if (node.attribute_or("interleaved", false)) return unimplemented("pairs of neighbours");
    if (kernel().values[static_cast<std::size_t>(table)].width != head_dim)
      return unimplemented("a part of each head is rotated");
    return compute(node, RowOp::kRotary, {x, table});
  }

  Status add_kv_store(const ir::Node& node) {
    if (!ir::is_floating_point(type(node.operands[3]).dtype)) return unimplemented("the cache has scales");
    const int key = TRY(row(node.operands[0]));
    const int value = TRY(row(node.operands[1]));
    const int slots = TRY(outer_row(node.operands[2]));
    if (kernel().values[static_cast<std::size_t>(slots)].width != 1) return unimplemented("several slots for a row");
    for (std::size_t i = 0; i < 2; ++i) {
      const ir::ValueId cache = memory_[node.operands[3 + i].index()];
      if (made_.contains(cache)) return unimplemented("the cache is made in the group itself");
      kernel().stores.push_back(
          {.value = i == 0 ? key : value, .operand = operand(cache, true), .slots = slots, .dtype = type(cache).dtype});
    }
    return ok_status();
  }

  const ir::Graph& graph_;
  std::span<const ir::ValueId> memory_;
  LoweredGroup group_;
  std::map<ir::ValueId, int> made_;  // values that the group makes; the key is their memory, as in the two maps below
  std::map<ir::ValueId, int> loads_;
  std::map<ir::ValueId, int> repeats_;
};

}  // namespace

std::vector<ir::ValueId> memory_of_values(const ir::Graph& graph, const ir::OpTable& ops) {
  std::vector<ir::ValueId> memory;
  for (std::size_t i = 0; i < graph.values.size(); ++i) memory.emplace_back(static_cast<std::int32_t>(i));
  for (const ir::Node& node : graph.nodes) {
    const ir::OpDecl* decl = ops.find(node.op);
    if (decl != nullptr && decl->execution == ir::Execution::kView)
      memory[node.results[0].index()] = memory[node.operands[0].index()];
  }
  return memory;
}

Result<LoweredGroup> lower_group(const ir::Graph& graph, std::span<const ir::ValueId> memory,
                                 std::span<const ir::NodeId> nodes, const std::vector<bool>& stored) {
  return Lowering(graph, memory).run(nodes, stored);
}

}  // namespace tessera
