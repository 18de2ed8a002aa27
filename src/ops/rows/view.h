// Memory under other shapes: views, parts, and memory that a later operator writes.
#pragma once

#include <string>
#include <string_view>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// reshape(x) {shape: "T, 8, 64"} → the same memory in that shape. The element counts must agree for
// every bucket. A view: no kernel.
extern const ir::OpDecl kReshape;

// split(x X[*, N]) {sizes: n₁, n₂, …} → X[*, n₁], X[*, n₂], …: copies of neighbouring column ranges;
// the sizes add up to N. Any dtype.
extern const ir::OpDecl kSplit;
extern const KernelDef kSplitCpu;
extern const KernelDef kSplitCuda;

// empty() {dtype, shape} and empty_like(x) → memory whose content a later node writes. No kernel.
extern const ir::OpDecl kEmpty;
extern const ir::OpDecl kEmptyLike;

// Results of one split, at most.
inline constexpr std::size_t kMaxSplits = 8;

// "T, 8, 64" as a shape; "" is a scalar's.
Result<ir::Shape> parse_shape(std::string_view text);
// What parse_shape() takes.
std::string shape_text(const ir::Shape& shape);

}  // namespace tessera
