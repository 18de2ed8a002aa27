// Computes the gated activation after a linear, for kernels that compute both operators. The kernels compute
// T(a(T(gate))) · T(up), where `gate` and `up` are float32 sums, a is the activation and T() rounds to the tensors'
// type. The operators' own kernels round at the same places.
#pragma once

#include "tessera/ir/graph.h"
#include "tessera/ops/cuda/cuda_activation.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

enum class Gate : int { kNone, kSilu, kGeluTanh, kGeluErf };

// Returns the gate of a silu_mul or gelu_mul node.
inline Gate gate_of(const ir::Node& node) {
  if (node.op == "silu_mul") return Gate::kSilu;
  return node.attribute_or("tanh", true) ? Gate::kGeluTanh : Gate::kGeluErf;
}

template <class T>
__device__ inline float gated(Gate kind, float gate, float up) {
  gate = rounded<T>(gate);
  const float activated = kind == Gate::kSilu       ? Silu{}(gate)
                          : kind == Gate::kGeluTanh ? GeluTanh{}(gate)
                                                    : GeluErf{}(gate);
  return rounded<T>(activated) * rounded<T>(up);
}

}  // namespace tessera::cuda
