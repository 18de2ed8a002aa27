// Operators that change no values: reshape shows memory in another shape, split copies parts, and empty makes memory
// that a later operator writes.
#pragma once

#include <string>
#include <string_view>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// reshape(x) {shape: "T, 8, 64"} → the same memory in that shape. Both shapes must have equal numbers of elements for
// every value of the symbols, such as T. The result is a view, and the operator has no kernel.
extern const ir::OpDecl kReshape;

// split(x X[*, N]) {sizes: n₁, n₂, …} → X[*, n₁], X[*, n₂], …: copies neighbouring column ranges. The sizes add up to
// N. Any dtype.
extern const ir::OpDecl kSplit;
extern const KernelDef kSplitCpu;
extern const KernelDef kSplitCuda;

// empty() {dtype, shape} and empty_like(x) → memory whose content a later node writes. Neither operator has a kernel.
extern const ir::OpDecl kEmpty;
extern const ir::OpDecl kEmptyLike;

// The maximum number of results of one split.
inline constexpr std::size_t kMaxSplits = 8;

// Parses a shape such as "T, 8, 64". The text "" is the shape of a scalar.
Result<ir::Shape> parse_shape(std::string_view text);
// Formats a shape in the form that parse_shape() takes.
std::string shape_text(const ir::Shape& shape);

}  // namespace tessera
