// Implements two-batch overlap. In a program for several ranks, a range of consecutive instructions runs twice, each
// time on one half of the rows. The ranks exchange one half while kernels compute the other:
//
//   whole    o ─ all_reduce ─ norm, gate, down ─ all_reduce ─ norm, qkv
//   halves   o₁  o₂          norm₁, gate₁, down₁   norm₂, gate₂, down₂   norm₁, qkv₁   norm₂, qkv₂
//   beside       all_reduce₁ all_reduce₂           all_reduce₁           all_reduce₂
//
// The exchanges in the line "beside" run on the side stream (device.h), which is recorded in the same graph. The two
// halves use separate rows of every value. The memory of these values is not reused before the whole range has ended
// (piecewise/liveness.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/compile/call_binding.h"
#include "tessera/compile/program.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Finds the longest ranges of consecutive instructions that may run in halves, for buckets of `least_tokens` tokens or
// more. In a range each instruction works row by row (ir::RowUse), on values whose number of rows is T (the number of
// tokens) or a multiple of T. At least one instruction of a range is an exchange between ranks, and no exchange needs
// scratch. Precondition: least_tokens >= 2.
void add_halves(Program& program, std::int64_t least_tokens);

// Returns the number of tokens in the first half. The second half has the remaining tokens.
std::int64_t tokens_of_first_half(std::int64_t tokens);

// Returns one half of the call's tensors. Preconditions: the number of rows of each tensor, except weights, is a
// multiple of `tokens`, and tokens >= 2.
CallViews half_of(const CallViews& whole, std::int64_t tokens, bool second);

// Binds all calls of one range as one operator. `program`, and the objects that `target` refers to, must live as long
// as Program::bind requires.
Result<std::unique_ptr<BoundOp>> bind_halves(const Program& program, std::span<const KernelCall> calls,
                                             const BindTarget& target);

}  // namespace tessera
