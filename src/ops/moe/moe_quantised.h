// Checks and reads the operands of moe_experts if its matrices are quantised (moe_experts.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

struct ExpertSizes {
  std::int64_t experts = 0;
  std::int64_t intermediate = 0;
};

// Returns how many operands gate_up and down have together besides their values.
Result<std::size_t> num_quantised_operands(const ir::Node& node);
// Checks gate_up, down and their other operands, which begin at operand `first`. The shape rule of moe_experts calls
// this function.
Result<ExpertSizes> check_quantised_experts(const ir::OpSignature& s, std::int64_t hidden, std::size_t first);
// Sets the problem's matrices, their sizes and rounds_inputs. Precondition: the shape rule has accepted the node.
void read_quantised_experts(const BindArgs& args, std::size_t first, ExpertsProblem& problem);

}  // namespace tessera
