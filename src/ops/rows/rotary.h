// Rotary position embedding (RoFormer, arXiv:2104.09864), in two steps. rotary_table computes a table that depends only
// on positions, so all layers use one table. Then rotary rotates the heads.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// rotary_table(positions i32[T], inv_freq f32[Dr/2]) {scale = 1} → f32[T, Dr]
//   For a position p and each element f of inv_freq, columns [0, Dr/2) hold cos(p·f)·scale, and columns [Dr/2, Dr) hold
//   sin(p·f)·scale. The product p·f is rounded to float32 as in Hugging Face's models. Its sine and cosine are accurate
//   to float32 for |p·f| < 2^24.
// rotary_table(positions i32[T], inv_freq f32[Dr/2]) {growth, growth_length, scale = 1} → f32[T, Dr]
//   Multiplies the row of position p by 1 + growth · log(1 + floor(p / growth_length)) too. Queries that are rotated by
//   this table grow with the position, as in Llama 4 and Ministral 3.
// rotary_table(positions i32[3, T], inv_freq f32[Dr/2]) {sections, interleaved = false, scale = 1} → f32[T, Dr]
//   The form for positions in three dimensions: time, height and width. Pair i is rotated by the position on the axis
//   that RopeSections::axis_of (rope_sections.h) returns. `sections` has three numbers that add up to Dr/2. If a
//   token's three positions are equal, its row has the same bits as in the plain form.
extern const ir::OpDecl kRotaryTable;
extern const KernelDef kRotaryTableCpu;
extern const KernelDef kRotaryTableCuda;

// rotary(x X[T, H·D], table f32[T, Dr]) {head_dim = D, interleaved = false} → X[T, H·D]
//   Rotates pairs (a, b) of each head's first Dr values, Dr <= D, to (a·cos - b·sin, b·cos + a·sin). The other values
//   are copied. Pair i is (x[i], x[i + Dr/2]), or (x[2i], x[2i + 1]) if interleaved.
extern const ir::OpDecl kRotary;
extern const KernelDef kRotaryCpu;
extern const KernelDef kRotaryCuda;

}  // namespace tessera
