// The text form of a program, for reading and comparing. Programs with equal texts do the same work.
//
//   program of 2 instructions at T=2
//   input %x: f32[T, 3]
//   weight %w: f32[2, 3]
//   result %y: f32[T, 2]
//   result %flat: f32[2*T], a view of %y
//   0: linear by onednn, 64 bytes
//      %y: f32[T, 2] = linear(%x, %w)
//   1: twice by fused, 32 bytes, grid [T, 1]
//      %z: f32[2*T] = twice(%flat)
//        rows T                                     the listing of generated code
//
// The compiler's notes follow the first line.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/compile/program.h"

namespace tessera {

// Prints the program. An instruction's bytes are the total size of its operands and results at `bucket`. States do not
// count, because an instruction reads only part of a state.
Result<std::string> to_text(const Program& program, const ir::Bucket& bucket);

}  // namespace tessera
