// Rules that turn piecewise graphs off. Each has a name, a condition and a message, and all are in one table. Once the
// engine can run the case that a rule excludes, the rule is removed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

enum class GraphMode : std::uint8_t {
  kOff,               // without graphs
  kPiecewise,         // prefill and decode in pieces, with attention between them
  kFull,              // prefill and decode each as one graph
  kFullAndPiecewise,  // decode as one graph, prefill in pieces
};
std::string_view graph_mode_name(GraphMode mode);  // as the option cuda_graph_mode spells it
Result<GraphMode> parse_graph_mode(std::string_view text);

// The inputs of rules: the user's options and the model's properties.
struct RuleInputs {
  GraphMode mode = GraphMode::kFullAndPiecewise;
  bool disable_cuda_graph = false;
  bool disable_piecewise_cuda_graph = false;
  bool enforce_piecewise_cuda_graph = false;
  bool generates = true;          // false for embedding models and classifiers, which generate no tokens
  std::string architecture = {};  // spelled as in config.json
  bool standard_gqa = true;       // LayerCaches::standard_gqa
  std::vector<std::int64_t> undeclared_layers = {};  // LayerCaches::undeclared
};

struct Rule {
  std::string_view name;
  bool (*applies)(const RuleInputs& inputs);
  std::string_view message;
  bool by_user;  // whether a user's option is the cause; enforce_piecewise_cuda_graph does not override such a rule
  std::string (*detail)(const RuleInputs& inputs) = nullptr;  // returns a text that is appended to the message
};
std::span<const Rule> piecewise_rules();

struct GraphSwitches {
  bool prefill = true;
  bool prefill_whole = false;  // prefill as one graph, without split ops
  bool decode = true;
  std::vector<std::string> messages;  // one for each rule that applied, in the table's order
};
GraphSwitches apply_rules(const RuleInputs& inputs);

}  // namespace tessera
