// Rotary position embedding (RoFormer, arXiv:2104.09864), in two steps: the table depends on positions
// alone, so that one serves all layers.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// rotary_table(positions i32[T], inv_freq f32[Dr/2]) {scale = 1} → f32[T, Dr]
//   columns [0, Dr/2): cos(p·f)·scale; columns [Dr/2, Dr): sin(p·f)·scale. The product p·f is rounded to
//   float32 as in Hugging Face's models; its sine and cosine are right to float32 for |p·f| < 2^24.
// rotary_table(positions i32[3, T], inv_freq f32[Dr/2]) {sections, interleaved = false, scale = 1} → f32[T, Dr]
//   The same with positions in three dimensions, time, height and width: pair i turns by the one that
//   RopeSections::axis_of (rope_sections.h) says. `sections` has three numbers that add up to Dr/2. A token whose three
//   positions are equal has the row of the plain form, to the bit.
extern const ir::OpDecl kRotaryTable;
extern const KernelDef kRotaryTableCpu;
extern const KernelDef kRotaryTableCuda;

// rotary(x X[T, H·D], table f32[T, Dr]) {head_dim = D, interleaved = false} → X[T, H·D]
//   Rotates pairs (a, b) of each head's first Dr values, Dr <= D, to (a·cos - b·sin, b·cos + a·sin); the
//   other values are copied. Pair i is (x[i], x[i + Dr/2]), interleaved (x[2i], x[2i + 1]).
extern const ir::OpDecl kRotary;
extern const KernelDef kRotaryCpu;
extern const KernelDef kRotaryCuda;

}  // namespace tessera
