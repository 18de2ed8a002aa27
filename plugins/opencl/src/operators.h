// The engine's operators on this device: the name of each, the function that binds it, and its planner if it has one.
#pragma once

#include <span>

#include "call.h"

namespace opencl {

struct Operator {
  const char* name;
  std::int32_t (*bind)(Binding& binding);
  const tessera_plugin_planner* planner = nullptr;
  // Tells which of several kernels or programs was bound; null: always the same ones.
  std::uint64_t (*variant)(const tessera_plugin_call& call) = nullptr;
};

// Each function returns the operators of one file of kernels.
std::span<const Operator> row_operators();
std::span<const Operator> rope_operators();
std::span<const Operator> linear_operators();
std::span<const Operator> attention_operators();
std::span<const Operator> token_operators();

}  // namespace opencl
