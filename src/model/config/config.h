// Reads a checkpoint's config.json and checks it. Every size must be within the limits below. Some sizes must divide
// others, as the model requires. No product of sizes may overflow, neither for one tensor nor for the whole model.
//
//   ModelConfig config = TRY(ModelConfig::read("/models/Qwen3-0.6B", registry.families));
//
// Files have one of two spellings, and both are accepted: the older one with `rope_theta`, `rope_scaling`,
// `torch_dtype` and `sliding_window`, and the newer one (transformers 5) with `rope_parameters`, `dtype` and
// `layer_types`. An absent field takes Hugging Face's default for the architecture (family.h). Sizes without a default
// must be present. Unknown keys are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/model/config/delta_net_config.h"
#include "tessera/model/config/gemma4_config.h"
#include "tessera/model/config/mla_config.h"
#include "tessera/model/config/moe_config.h"
#include "tessera/model/config/rope.h"
#include "tessera/model/config/vision_config.h"
#include "tessera/model/formats/weight_formats.h"
#include "tessera/model/image_tokens.h"
#include "tessera/model/weights/gguf_options.h"
#include "tessera/model/weights/stored_dtype.h"

namespace tessera {

enum class Activation {
  kSilu,      // x · sigmoid(x)
  kGelu,      // x · Φ(x), with erf
  kGeluTanh,  // GELU's tanh approximation ("gelu_pytorch_tanh")
};

// How RMS norms are applied to queries and keys before the rotation.
enum class QkNorm {
  kNone,
  kHead,  // over each head by itself, with one weight [head_dim] for all heads
  kRow,   // over the whole row, all heads together, with weights [heads · head_dim]
};

class FamilyRegistry;

// How the scores of a classifier's labels follow from its logits. Hugging Face calls this the problem type.
enum class LabelScale : std::uint8_t {
  kExclusive,    // one label applies: softmax; with a single label, sigmoid
  kIndependent,  // any number of labels applies: sigmoid of each logit
  kRaw,          // regression: the logits themselves
};

struct ModelConfig {
  // Limits of the accepted sizes. For comparison, the largest published dense model has 126 layers and a hidden size of
  // 16384.
  static constexpr std::int64_t kMaxVocabSize = std::int64_t{1} << 21;  // the limit of the operator `sample`
  static constexpr std::int64_t kMaxHiddenSize = std::int64_t{1} << 18;
  static constexpr std::int64_t kMaxIntermediateSize = std::int64_t{1} << 20;
  static constexpr std::int64_t kMaxLayers = 1024;
  static constexpr std::int64_t kMaxHeads = 4096;
  static constexpr std::int64_t kMaxHeadDim = 1024;
  static constexpr std::int64_t kMaxQuerySize = std::int64_t{1} << 20;  // heads × head_dim
  static constexpr std::int64_t kMaxLabels = 1 << 16;
  static constexpr std::int64_t kMaxPositions = std::int64_t{1} << 27;

  std::string architecture = {};  // "LlamaForCausalLM"; family.h lists the known architectures
  // The prefix of the body's tensor names: "model." in "model.embed_tokens.weight".
  std::string tensor_prefix = "model.";
  std::int64_t vocab_size = 0;
  // A classifier's number of labels; 0 for a language model. Instead of a language model's head, a classifier has a
  // matrix "score" with one row for each label.
  std::int64_t num_labels = 0;
  std::vector<std::string> label_names{};           // [num_labels]
  LabelScale label_scale = LabelScale::kExclusive;  // how a classifier's logits become scores
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  // divides num_attention_heads
  std::int64_t head_dim = 0;             // even; need not be hidden_size / num_attention_heads
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool unit_offset_norms = false;  // norms multiply by 1 + the stored weight
  // True if norms round their result only once, after they multiply by the weight. If false, they also round before
  // they multiply, unless unit_offset_norms is true.
  bool round_norms_once = false;
  Activation hidden_act = Activation::kSilu;
  bool tie_word_embeddings = false;  // the LM head is the embedding matrix
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;  // gate, up and down have biases
  QkNorm qk_norm = QkNorm::kNone;
  // Whether the output of attention is multiplied by sigmoid(gate). If so, the gate is projected together with q.
  bool attention_gate = false;
  bool attention_sinks = false;  // each head has a sink: a logit that takes part in the softmax but has no value vector
  std::optional<double> attention_scale = std::nullopt;  // scale of q·k; absent: 1 / √head_dim
  double attention_softcap = 0;                          // soft cap of attention's logits; 0: none
  double logit_softcap = 0;                              // soft cap of the head's logits; 0: none
  double embedding_scale = 1;                            // factor of the token embeddings
  // [num_hidden_layers]: each layer's window w, with which position p attends to p - w + 1 … p; 0 for full attention.
  std::vector<std::int64_t> sliding_windows = {};
  RopeConfig rope = {};
  std::optional<RopeConfig> sliding_rope = std::nullopt;  // rotation of layers with a window, if not `rope`
  std::optional<MoeConfig> moe = std::nullopt;
  std::optional<MlaConfig> mla = std::nullopt;
  std::optional<DeltaNetConfig> delta_net = std::nullopt;
  std::optional<Gemma4Config> gemma4 = std::nullopt;
  // Number of next-token layers (multi-token prediction). They come after the body's layers, and predict draft tokens
  // (layers/draft.h).
  std::int64_t draft_layers = 0;
  std::optional<ImageTokens> images = std::nullopt;  // absent if prompts have only text
  // The tower that turns images into embedding rows; absent if the file describes none.
  std::optional<VisionConfig> vision = std::nullopt;
  std::optional<StoredDtype> dtype = std::nullopt;  // F32, F16 or BF16; absent if the file does not say
  // How linears are stored. If only the experts are in MXFP4, this says that linears are unquantised.
  WeightFormats formats = {};
  std::optional<TokenId> bos_token_id = std::nullopt;
  std::vector<TokenId> eos_token_ids = {};             // may be empty
  std::optional<TokenId> pad_token_id = std::nullopt;  // absent also if the file's id is -1 or too large
  // The text of config.json, for a family that builds its body from this text (ModelFamily::make_body); empty for other
  // families.
  std::string json = {};

  // Reads `path`: a model folder, a config.json, or a GGUF file, whose metadata are converted to a config. Quantisation
  // settings are also read from hf_quant_config.json or, if the folder has no such file, from quantize_config.json.
  // `gguf_options` are for GGUF files. Returns not_found if `path` has no config.json and is no GGUF file. Returns
  // unimplemented for unsupported architectures and features, such as some formats of quantised weights. Returns
  // invalid_argument for all other errors in the file.
  static Result<ModelConfig> read(const std::string& path, const FamilyRegistry& families,
                                  const GgufOptions& gguf_options = {});
  // Like read(), for a parsed config. `file` names the source in messages. `beside` is the content of
  // hf_quant_config.json or quantize_config.json, or null.
  static Result<ModelConfig> from_json(const Json& json, const std::string& file, const FamilyRegistry& families,
                                       const Json* beside = nullptr);

  std::int64_t query_size() const { return num_attention_heads * head_dim; }      // rows of q, columns of o
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }  // rows of k and of v
  // Returns the number of columns of the head's logits: the vocabulary size, or a classifier's number of labels.
  std::int64_t num_logits() const { return num_labels > 0 ? num_labels : vocab_size; }
  bool any_sliding_window() const;
  // Returns the number of values in a row that a request may give in place of a token's embedding. If the model reads
  // images, such a row also holds the deepstack levels.
  std::int64_t embedding_row_values() const { return images ? images->row_values(hidden_size) : hidden_size; }
};

}  // namespace tessera
