// fuse_native_forms: an operator's native form becomes the operator.
//
// Before                                                 After
//   %parts: f32[T, 8], %up: f32[T, 8] =                    %y: f32[T, 8] = silu_mul(%x)
//       split(%x) {sizes = [8, 8]}                         return %y
//   %gate: f32[T, 8] = silu(%parts)
//   %y: f32[T, 8] = mul(%gate, %up)
//   return %y
//
// What is looked for, and in which order, is the list of fused_forms.h: add_rms_norm, head_norm, qkv_rope_store,
// silu_mul, gelu_mul, and additions after a linear, which become its bias or residual. When a match holds and when it
// may be replaced says native_form.h. Results agree within rounding: a fused operator rounds where its native form
// does, but a linear's terms are added before its only rounding.
#pragma once

#include <span>

#include "tessera/compile/pass.h"
#include "tessera/compile/passes/fused_forms.h"

namespace tessera {

PassResult fuse_native_forms(const ir::Graph& graph, const ir::OpTable& ops);
// Looks for `forms` instead of the list.
PassResult fuse_native_forms(const ir::Graph& graph, const ir::OpTable& ops, std::span<const FusedForm> forms);

}  // namespace tessera
