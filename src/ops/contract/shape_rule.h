// Functions for shape rules. A shape rule checks an operator's operands and returns the types of its results. Each
// function checks one operand or one attribute. An error message names the operator, what it got and what it accepts.
// The number of operands and the kinds of attributes have already been checked (ir::check_node).
//
//   Result<std::vector<ir::Type>> infer_rms_norm(const ir::OpSignature& s) {
//     TRY(expect_floating(s, 0, "x"));
//     TRY(expect_min_rank(s, 0, "x", 1));
//     TRY(expect_type(s, 1, "w", {s.operands[0].dtype, {s.operands[0].shape.back()}}));
//     return std::vector{s.operands[0]};
//   }
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Returns kInvalidArgument with the message "<op>: <message>".
Status refuse(const ir::OpSignature& s, std::string_view message);

// Each of these functions checks one operand. `i` is the operand's index, and `name` is its name for messages.
Status expect_floating(const ir::OpSignature& s, std::size_t i, std::string_view name);
Status expect_rank(const ir::OpSignature& s, std::size_t i, std::string_view name, std::size_t rank);
Status expect_min_rank(const ir::OpSignature& s, std::size_t i, std::string_view name, std::size_t rank);
Status expect_type(const ir::OpSignature& s, std::size_t i, std::string_view name, const ir::Type& type);

// Returns the operand's last dimension, which must be a number above 0, not a symbol. Precondition: rank >= 1.
Result<std::int64_t> constant_cols(const ir::OpSignature& s, std::size_t i, std::string_view name);

// Checks a double attribute, which must be finite and above 0.
Status expect_positive(const ir::OpSignature& s, std::string_view attribute);
// Returns a string attribute, or `fallback` if it is absent.
std::string string_attribute(const ir::Node& node, std::string_view name, std::string_view fallback);

}  // namespace tessera
