// Rules that turn piecewise graphs off (B5, B6): one table of name, condition and message. A rule is
// here only while the engine truly cannot.
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
  kOff,               // no graphs
  kPiecewise,         // prefill and decode by pieces, attention between them
  kFull,              // prefill and decode each as one graph
  kFullAndPiecewise,  // decode as one graph, prefill by pieces
};
std::string_view graph_mode_name(GraphMode mode);  // as --cuda-graph-mode spells it
Result<GraphMode> parse_graph_mode(std::string_view text);

// What the user said and what the model is.
struct RuleInputs {
  GraphMode mode = GraphMode::kFullAndPiecewise;
  bool disable_cuda_graph = false;
  bool disable_piecewise_cuda_graph = false;
  bool enforce_piecewise_cuda_graph = false;
  bool torch_compile = false;  // --enable-torch-compile, which is for decode
  std::int64_t pipeline_stages = 1;
  // Every layer has attention in the graph, with query heads a multiple of KV heads.
  bool standard_gqa = true;
};

struct Rule {
  std::string_view name;
  bool (*applies)(const RuleInputs& inputs);
  std::string_view message;
  bool by_user;  // an explicit wish: --enforce-piecewise-cuda-graph does not skip it
};
std::span<const Rule> piecewise_rules();

struct GraphSwitches {
  bool prefill = true;
  bool prefill_whole = false;  // prefill as one graph: no split ops
  bool decode = true;
  std::vector<std::string> messages;  // of the rules that applied, in the table's order
};
GraphSwitches apply_rules(const RuleInputs& inputs);

}  // namespace tessera
