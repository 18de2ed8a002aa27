#include "tessera/ops/moe/moe_quantised.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "tessera/ops/contract/shape_rule.h"

namespace tessera {
namespace {

constexpr std::size_t kGateUp = 3;  // kGateUp and kDown are the operands' indices
constexpr std::size_t kDown = 4;

// The formats of gate_up and down. They differ only in the sizes of blocks, or in the type of GGUF's blocks.
struct Formats {
  QuantisedFormat gate_up;
  QuantisedFormat down;
  // Returns the number of operands that a matrix has besides its values.
  std::size_t num_more() const { return gate_up.num_operands() - 1; }
};

Result<Formats> formats_of(const ir::Node& node) {
  Formats formats{.gate_up = TRY(QuantisedFormat::of(node)), .down = {}};
  formats.down = formats.gate_up;
  const std::string down = string_attribute(node, "down_values", "");
  if (!down.empty()) {
    const BlockTypeInfo* type = block_values(down);
    if (type == nullptr || !formats.gate_up.is_blocks())
      return invalid_argument(
          fmt::format("{}: values = \"{}\" and down_values = \"{}\"; only types of blocks may differ", node.op,
                      string_attribute(node, "values", ""), down));
    formats.down.blocks = type->type;
  }
  const std::string inputs = string_attribute(node, "inputs", "plain");
  if (inputs != "plain" && (inputs != "block" || !formats.gate_up.is_blocks()))
    return invalid_argument(
        fmt::format("{}: inputs = \"{}\"; it must be \"plain\", or \"block\" with blocks", node.op, inputs));
  if (formats.gate_up.is_blocks()) return formats;
  formats.down.group_rows = node.attribute_or("down_group_rows", std::int64_t{0});
  formats.down.group_cols = node.attribute_or("down_group_cols", std::int64_t{0});
  if (formats.down.group_rows < 1 || formats.down.group_cols < 1)
    return invalid_argument(fmt::format("{}: down_group_rows = {} and down_group_cols = {}; they must be at least 1",
                                        node.op, formats.down.group_rows, formats.down.group_cols));
  if (formats.gate_up.groups)
    return invalid_argument(fmt::format("{}: groups = true; experts' columns have no order", node.op));
  return formats;
}

// Returns a matrix's operands in order: its values, then `count` operands from `first` on.
template <class T>
std::vector<T> operands_of(std::span<const T> operands, std::size_t values, std::size_t first, std::size_t count) {
  std::vector<T> all{operands[values]};
  for (const T& operand : operands.subspan(first, count)) all.push_back(operand);
  return all;
}

}  // namespace

Result<std::size_t> num_quantised_operands(const ir::Node& node) { return 2 * TRY(formats_of(node)).num_more(); }

Result<ExpertSizes> check_quantised_experts(const ir::OpSignature& s, std::int64_t hidden, std::size_t first) {
  const Formats formats = TRY(formats_of(s.node));
  const std::size_t more = formats.num_more();
  const std::vector<ir::Type> of_gate_up = operands_of(s.operands, kGateUp, first, more);
  const std::vector<ir::Type> of_down = operands_of(s.operands, kDown, first + more, more);
  const MatrixSize gate_up = TRY(expect_quantised({of_gate_up, s.node}, 0, formats.gate_up));
  const MatrixSize down = TRY(expect_quantised({of_down, s.node}, 0, formats.down));
  const std::int64_t experts = gate_up.rows / (2 * down.cols);
  if (gate_up.cols != hidden || gate_up.rows != experts * 2 * down.cols || down.rows != experts * hidden)
    return refuse(s, fmt::format("gate_up is [{}, {}] and down [{}, {}]; for x with {} columns they must be [E 2I, {}] "
                                 "and [E {}, I]",
                                 gate_up.rows, gate_up.cols, down.rows, down.cols, hidden, hidden, hidden));
  if (2 * down.cols % formats.gate_up.group_rows != 0 || hidden % formats.down.group_rows != 0)
    return refuse(s,
                  fmt::format("group_rows = {} and down_group_rows = {}; they must divide an expert's {} and {} rows",
                              formats.gate_up.group_rows, formats.down.group_rows, 2 * down.cols, hidden));
  return ExpertSizes{.experts = experts, .intermediate = down.cols};
}

void read_quantised_experts(const BindArgs& args, std::size_t first, ExpertsProblem& problem) {
  const Formats formats = *formats_of(args.node);
  const std::size_t more = formats.num_more();
  problem.gate_up_matrix = make_quantised_matrix(formats.gate_up, operands_of(args.operands, kGateUp, first, more));
  problem.down_matrix = make_quantised_matrix(formats.down, operands_of(args.operands, kDown, first + more, more));
  problem.rounds_inputs = string_attribute(args.node, "inputs", "plain") == "block";
  problem.intermediate = problem.down_matrix.cols;
  problem.experts = problem.gate_up_matrix.rows / (2 * problem.intermediate);
}

}  // namespace tessera
