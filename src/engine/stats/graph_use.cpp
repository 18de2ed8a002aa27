#include "tessera/engine/stats/graph_use.h"

#include <algorithm>
#include <array>

namespace tessera {

std::string_view forward_phase_name(ForwardPhase phase) {
  constexpr std::array<std::string_view, 3> kNames = {"prefill", "decode", "mixed"};
  return kNames[static_cast<std::size_t>(phase)];
}

void add_graph_use(std::vector<GraphUse>& uses, ForwardPhase phase, const Decision& decision, std::int64_t tokens) {
  const ForwardKey how = ForwardKey::of(decision);
  auto use = std::find_if(uses.begin(), uses.end(),
                          [&](const GraphUse& known) { return known.phase == phase && known.how == how; });
  if (use == uses.end()) use = uses.insert(uses.end(), {.phase = phase, .how = how});
  ++use->count.forwards;
  use->count.tokens += tokens;
  use->count.padding += decision.padding;
}

}  // namespace tessera
