// The names of a GGUF file's tensors, and how their content differs from that of Hugging Face's tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tessera {

// What the converter did to a tensor, and is undone here (gguf_tensors.cpp).
enum class TensorForm : std::uint8_t {
  kSame,
  kSkipped,  // the config has its content
  kLessOne,  // a norm of a family whose norms are offsets from one: stored plus one
  kRow,      // a matrix of one row, stored as a vector
  // The rows of each query or key head lie in pairs (i, i + half) instead of in two halves.
  kQueryRows,
  kKeyRows,
  // A stack of experts [experts, rows, cols], whose experts have tensors of their own: "{}" in the name is the expert.
  kExperts,
  // A stack like it of [experts, gate's rows and then up's, cols]. Each expert has two tensors, and "gate_proj.weight"
  // and "up_proj.weight" follow the name.
  kGateUpExperts,
  // Gate and up whose rows are joined in turn: biases [experts, rows], and matrices in MXFP4, whose values and
  // exponents are two tensors. The name is that of the matrix; "_blocks" and "_scales" follow.
  kBiasGate,
  kBiasUp,
  kMxfp4Gate,
  kMxfp4Up,
  kMxfp4Down,
  // A gated delta net's value heads, which lie in another order: as runs of rows, as single rows, and as runs of
  // columns. Mixed rows have those of queries and keys before them.
  kValueRows,
  kValueHeads,
  kValueColumns,
  kMixedRows,
  kConvolution,  // kMixedRows, and a dimension of 1 in the middle
  kDecay,        // kValueHeads, and −exp(value) is stored
  // Two tensors for one of multi-head latent attention: for each head the transposed rows of keys, and those of values.
  kLatentKeys,
  kLatentValues,
};

struct TensorNameRule {
  std::string_view gguf;  // for a layer's tensor: what follows "blk.<layer>."
  // The name here; of a layer's tensor, what follows "model.layers.<layer>." A name that begins with '/' has nothing
  // before it.
  std::string_view own;
  TensorForm form = TensorForm::kSame;
};

struct GgufTensorName {
  std::optional<std::int64_t> layer;  // absent: a tensor of no layer
  std::string_view rest;              // the name without "blk.<layer>."
};
GgufTensorName parse_tensor_name(std::string_view name);

// Returns the rule for a tensor: the one in `own`, else that of most architectures; null if there is none.
const TensorNameRule* find_name_rule(const GgufTensorName& name, std::span<const TensorNameRule> own);
// Returns the rule by the name here, TensorNameRule::own, in the same order; null if there is none.
const TensorNameRule* find_rule_of_own(std::string_view name, bool of_layer, std::span<const TensorNameRule> own);

}  // namespace tessera
