// The text form of a graph, for reading, for comparing in tests, for hashing and for writing by hand.
//
//   graph @llama {
//     group "full" paged layers [0, 1]
//     input %input_ids: i32[T]
//     weight %model.norm.weight: bf16[64]
//     state %k_cache.0: bf16[P, 16, 2, 16]
//     %h: bf16[T, 64] = embedding(%input_ids, %model.embed_tokens.weight)
//     %normed: bf16[T, 64], %sum: bf16[T, 64] = add_rms_norm(%h, %x, %w) {eps = 1e-06}
//     attention(%q, %k_cache.0, %v_cache.0, mut %attn) {group = 0, scale = 0.25}
//     return %normed
//   }
//
// The grammar follows. [x] is optional, and {x} may occur any number of times. Line breaks count as spaces. "//" begins
// a comment, which ends with the line.
//
//   graph      = "graph" "@"name "{" {statement} "return" [values] "}"
//   statement  = group | input | weight | state | node
//   group      = "group" string ("paged" | "window" integer | "latent" | "state") "layers" integers
//   input      = "input" value ":" type                          likewise "weight" and "state"
//   node       = [result {"," result} "="] op "(" [operand {"," operand}] ")" ["{" [attribute {"," attribute}] "}"]
//   result     = value [":" type]                                the type may be omitted if declarations are given
//   operand    = ["mut"] value                                   mut: the node writes this operand
//   attribute  = (word | string) "=" ("true" | "false" | integer | double | string | integers)
//   values     = value {"," value}
//   value      = "%"name
//   name       = {letter | digit | "_" | "."} | string           bare if possible
//   op         = word | string                                   quoted if it is a keyword or no word
//   type       = dtype "[" [dimension {"," dimension}] "]"       dtypes and dimensions as in ir/type.h
//   integers   = "[" [integer {"," integer}] "]"
//   word       = (letter | "_") {letter | digit | "_" | "."}
//   string     = '"' … '"' with \" \\ \n \t and \xHH
//
// An integer has neither a decimal point nor an exponent. A double has at least one of them, or is inf, -inf or nan.
// `1` and `1.0` are therefore different. Values must be defined before they are used. Apart from this, statements may
// have any order. The printer writes groups, inputs, weights, states and nodes, each in the graph's order, and
// attributes sorted by name. Its output is the canonical text, for which print(parse(text)) == text. For any graph,
// parse(print(graph)) is structurally_equal to the graph. The value ids of the parsed graph follow the order of the
// text. Doubles keep their bits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera::ir {

inline constexpr std::size_t kMaxGraphTextBytes = std::size_t{64} << 20;

// Prints any graph, even if verify() returns an error for it. An id that is out of range is printed in the form "%?7",
// which does not parse.
std::string to_text(const Graph& graph);
// Prints one node's statement, without a line break, for messages and tooltips.
std::string to_text(const Graph& graph, const Node& node);

// Parses a graph. Errors name line and column (in bytes, from 1), what was found and what was expected. If `ops` is not
// null, every node must agree with the declaration of its operator. If it is null, operators are not checked. verify()
// checks the other rules.
Result<Graph> parse_graph(std::string_view text, const OpTable* ops);

}  // namespace tessera::ir
