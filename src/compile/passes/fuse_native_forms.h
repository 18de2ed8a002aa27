// fuse_native_forms replaces an operator's native form (simpler operators that compute the same) with the operator.
//
// Before                                                 After
//   %parts: f32[T, 8], %up: f32[T, 8] =                    %y: f32[T, 8] = silu_mul(%x)
//       split(%x) {sizes = [8, 8]}                         return %y
//   %gate: f32[T, 8] = silu(%parts)
//   %y: f32[T, 8] = mul(%gate, %up)
//   return %y
//
// The forms are searched for in the order of fused_forms.h: head_norm, qkv_rope_store, add_rms_norm, silu_mul,
// gelu_mul, and last an addition after a linear. This addition becomes the linear's bias or residual. native_form.h
// defines what a match is and when it may be replaced. The results agree within rounding. A fused operator rounds at
// the same points as its native form, except that a linear adds bias and residual before it rounds.
#pragma once

#include <span>

#include "tessera/compile/pass.h"
#include "tessera/compile/passes/fused_forms.h"

namespace tessera {

PassResult fuse_native_forms(const ir::Graph& graph, const ir::OpTable& ops);
// Searches for `forms` instead of the forms of fused_forms().
PassResult fuse_native_forms(const ir::Graph& graph, const ir::OpTable& ops, std::span<const FusedForm> forms);

}  // namespace tessera
