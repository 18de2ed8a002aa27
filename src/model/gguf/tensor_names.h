// Maps the names of a GGUF file's tensors to Hugging Face's names, and says how converters changed the tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// The conversion that converters applied to a tensor. gguf_tensors.cpp reverses it.
enum class TensorForm : std::uint8_t {
  kSame,
  kSkipped,  // not among the result's tensors, because the config contains the same information
  kLessOne,  // norm weights; the file stores Hugging Face's weight plus one
  kRow,      // a matrix with one row, which the file stores as a vector
  // The n rows of each query or key head are stored in the order 0, n/2, 1, n/2 + 1, and so on.
  kQueryRows,
  kKeyRows,
  // A stack of experts [experts, rows, cols]. Each expert becomes a tensor. In the tensor's name, the expert's number
  // replaces "{}".
  kExperts,
  // A stack [experts, rows of gate and then of up, cols]. Each expert becomes two tensors, whose names end in
  // "gate_proj.weight" and "up_proj.weight".
  kGateUpExperts,
  // Experts of GPT-OSS. Hugging Face interleaves the rows of gate and up. Biases are [experts, rows]. A matrix in MXFP4
  // becomes two tensors: the values, whose name ends in "_blocks", and the exponents, whose name ends in "_scales".
  kBiasGate,
  kBiasUp,
  kMxfp4Gate,
  kMxfp4Up,
  kMxfp4Down,
  // Tensors of a gated delta net, in which the value heads are permuted. A value head consists of several rows in
  // kValueRows and kMixedRows, of one row in kValueHeads, and of several columns in kValueColumns. In kMixedRows the
  // rows of queries and keys come before those of the value heads.
  kValueRows,
  kValueHeads,
  kValueColumns,
  kMixedRows,
  kConvolution,  // like kMixedRows; Hugging Face's tensor has an additional middle dimension of 1
  kDecay,        // like kValueHeads; the file stores −exp(value)
  // The rows of a reranker's head for "yes" and "no". They become one row, the row of "yes" minus the row of "no". A
  // head with a single row is not changed.
  kYesLessNo,
  // Two tensors of multi-head latent attention, which are one tensor in Hugging Face's layout. The joined tensor has,
  // for each head, the rows of the keys, then the rows of the values. The file stores the rows of the keys transposed.
  kLatentKeys,
  kLatentValues,
};

struct TensorNameRule {
  std::string_view gguf;  // the name in the file; for a tensor of a layer, the part after "blk.<layer>."
  // Hugging Face's name of the tensor. For a tensor of a layer, only the part of the name after
  // "model.layers.<layer>.". If the text begins with '/', the text after the '/' is the name, and no prefix is added.
  std::string_view own;
  TensorForm form = TensorForm::kSame;
};

struct GgufTensorName {
  std::optional<std::int64_t> layer;  // absent if the tensor belongs to no layer
  std::string_view rest;              // the name without "blk.<layer>."
};
GgufTensorName parse_tensor_name(std::string_view name);

// Returns the rule for a tensor. First searches the rules of the file's architecture (`own`), then the rules that most
// architectures share. Returns null if no rule has the tensor's name.
const TensorNameRule* find_name_rule(const GgufTensorName& name, std::span<const TensorNameRule> own);
// Like find_name_rule(), but searches by Hugging Face's name (TensorNameRule::own).
const TensorNameRule* find_rule_of_own(std::string_view name, bool of_layer, std::span<const TensorNameRule> own);

// Where a model's tensors have their names in Hugging Face's layout.
struct OwnNames {
  std::span<const TensorNameRule> rules;  // the rules of the file's architecture
  std::string body = "model.";            // prefix of the names of the language model's tensors
  // The number of the body's layers, if the next-token layers after them are called "mtp.layers.<n>.".
  std::optional<std::int64_t> drafts_after = {};
};
// Returns the name that a GGUF file has for the tensor `name` of Hugging Face's layout. Returns `name` if no rule has
// it.
std::string gguf_name_of(std::string_view name, const OwnNames& names);

}  // namespace tessera
