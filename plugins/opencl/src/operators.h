// Lists the engine's operators that this device supports. An entry has the operator's name, the function that binds the
// operator, and a planner if the operator has one.
#pragma once

#include <span>

#include "call.h"

namespace opencl {

struct Operator {
  const char* name;
  std::int32_t (*bind)(Binding& binding);
  const tessera_plugin_planner* planner = nullptr;
  // Returns a number that differs between the kernels or programs that may be bound. Null if they are always the same.
  std::uint64_t (*variant)(const tessera_plugin_call& call) = nullptr;
};

// Each function returns the operators whose kernels are in one file.
std::span<const Operator> row_operators();
std::span<const Operator> rope_operators();
std::span<const Operator> linear_operators();
std::span<const Operator> attention_operators();
std::span<const Operator> token_operators();

}  // namespace opencl
