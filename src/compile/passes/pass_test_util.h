// Helpers for tests of passes. The helpers take and return graphs as text.
//
//   EXPECT_EQ(after(remove_copies, "%c = copy(%x) %y = silu(%c) return %y"), graph("%y = silu(%x) return %y"));
//   EXPECT_EQ(after(remove_copies, "%c = copy(%x) return %c"), kUnchanged);
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tessera/compile/pass.h"
#include "tessera/ir/text.h"
#include "tessera/ir/verify.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera::testing {

inline constexpr std::string_view kUnchanged = "unchanged";

// Declarations that the statements of every test may use.
inline constexpr std::string_view kDeclarations = R"(
  input %x: f32[T, 8]
  input %r: f32[T, 8]
  input %h: bf16[T, 8]
  input %slots: i32[T]
  input %positions: i32[T]
  weight %w: f32[8]
  weight %m: f32[8, 8]
  weight %hw: f32[4]
  weight %kw: f32[4]
  weight %freq: f32[2]
  state %s: f32[T, 8]
  state %kc: f32[P, 16, 1, 4]
  state %vc: f32[P, 16, 1, 4]
)";

inline ir::Graph parse_statements(std::string_view statements) {
  const std::string text = "graph @g {" + std::string(kDeclarations) + std::string(statements) + "}";
  Result<ir::Graph> parsed = ir::parse_graph(text, &built_in_ops());
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string() << "\n" << statements;
  if (!parsed.ok()) return {};
  const Status status = ir::verify(*parsed, built_in_ops());
  EXPECT_TRUE(status.ok()) << status.to_string() << "\n" << statements;
  return *std::move(parsed);
}

// Returns the canonical text of the graph that consists of kDeclarations and `statements`.
inline std::string graph(std::string_view statements) { return ir::to_text(parse_statements(statements)); }

// Runs a pass on the statements. Returns the verified result, or kUnchanged if the pass changes nothing.
inline std::string after(PassResult (*pass)(const ir::Graph&, const ir::OpTable&), std::string_view statements) {
  Result<std::optional<ir::Graph>> result = pass(parse_statements(statements), built_in_ops());
  if (!result.ok()) return result.status().to_string();
  if (!result->has_value()) return std::string(kUnchanged);
  const Status status = ir::verify(**result, built_in_ops());
  EXPECT_TRUE(status.ok()) << status.to_string() << "\n" << ir::to_text(**result);
  return ir::to_text(**result);
}

}  // namespace tessera::testing
