#include "tessera/ops/moe/moe_quantised.h"

#include <fmt/format.h>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ops/contract/shape_rule.h"

namespace tessera {
namespace {

constexpr std::size_t kGateUp = 3;  // kGateUp and kDown are the indices of these operands
constexpr std::size_t kDown = 4;

struct Formats {
  QuantisedFormat gate_up;
  QuantisedFormat down;
};

// Returns the number of operands that a matrix has besides its values.
std::size_t num_more(const QuantisedFormat& format) { return format.num_operands() - 1; }

// Returns a copy of `node` whose attributes describe down in place of gate_up. If there is an attribute "down_x", its
// value replaces the value of the attribute "x".
ir::Node node_of_down(const ir::Node& node) {
  constexpr std::string_view kPrefix = "down_";
  std::map<std::string, ir::Attribute> attributes(node.attributes.begin(), node.attributes.end());
  for (const auto& [name, value] : node.attributes)
    if (name.starts_with(kPrefix)) attributes.insert_or_assign(name.substr(kPrefix.size()), value);
  return {.op = node.op + ", down", .attributes = {attributes.begin(), attributes.end()}};
}

Result<Formats> formats_of(const ir::Node& node) {
  const std::string values = string_attribute(node, "values", "");
  const std::string of_down = string_attribute(node, "down_values", values);
  if ((block_values(values) == nullptr) != (block_values(of_down) == nullptr))
    return invalid_argument(
        fmt::format("{}: values = \"{}\" and down_values = \"{}\"; either both or neither must be a type of blocks",
                    node.op, values, of_down));
  Formats formats;
  formats.gate_up = TRY(QuantisedFormat::of(node));
  formats.down = TRY(QuantisedFormat::of(node_of_down(node)));
  const std::string inputs = string_attribute(node, "inputs", "plain");
  if (inputs != "plain" && (inputs != "block" || !formats.gate_up.is_blocks()))
    return invalid_argument(
        fmt::format("{}: inputs = \"{}\"; it must be \"plain\", or \"block\" with blocks", node.op, inputs));
  if (formats.gate_up.is_blocks()) return formats;
  if (formats.gate_up.groups)
    return invalid_argument(
        fmt::format("{}: groups = true; it must be false, because experts do not support reordered columns", node.op));
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

Result<std::size_t> num_quantised_operands(const ir::Node& node) {
  const Formats formats = TRY(formats_of(node));
  return num_more(formats.gate_up) + num_more(formats.down);
}

Result<ExpertSizes> check_quantised_experts(const ir::OpSignature& s, std::int64_t hidden, std::size_t first) {
  const Formats formats = TRY(formats_of(s.node));
  const std::size_t more = num_more(formats.gate_up);
  const std::vector<ir::Type> of_gate_up = operands_of(s.operands, kGateUp, first, more);
  const std::vector<ir::Type> of_down = operands_of(s.operands, kDown, first + more, num_more(formats.down));
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
  const std::size_t more = num_more(formats.gate_up);
  problem.gate_up_matrix = make_quantised_matrix(formats.gate_up, operands_of(args.operands, kGateUp, first, more));
  problem.down_matrix =
      make_quantised_matrix(formats.down, operands_of(args.operands, kDown, first + more, num_more(formats.down)));
  problem.rounds_inputs = string_attribute(args.node, "inputs", "plain") == "block";
  problem.intermediate = problem.down_matrix.cols;
  problem.experts = problem.gate_up_matrix.rows / (2 * problem.intermediate);
}

}  // namespace tessera
