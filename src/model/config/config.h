// The content of a checkpoint's config.json, checked: every size is within the limits below and divides what it must
// divide, and no product of sizes of one tensor or of the whole model overflows.
//
//   ModelConfig config = TRY(ModelConfig::read("/models/Qwen3-0.6B", registry.families));
//
// Both spellings are read: `rope_theta`/`rope_scaling`/`torch_dtype`/`sliding_window` and transformers 5's
// `rope_parameters`/`dtype`/`layer_types`. An absent field takes Hugging Face's default for the architecture
// (family.h); the sizes of the model have no default and must be present. A key that the architecture does not know is
// ignored.
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
#include "tessera/model/weights/stored_dtype.h"

namespace tessera {

enum class Activation {
  kSilu,      // x · sigmoid(x)
  kGelu,      // x · Φ(x), with erf
  kGeluTanh,  // GELU's tanh approximation ("gelu_pytorch_tanh")
};

// The ways in which RMS norms apply to queries and keys before the rotation.
enum class QkNorm {
  kNone,
  kHead,  // on each head, with one weight [head_dim] for all heads
  kRow,   // on all heads at once, weights [heads · head_dim]
};

class FamilyRegistry;

struct ModelConfig {
  // Limits of the sizes that are accepted. The largest published dense model has 126 layers and a hidden size of 16
  // 384.
  static constexpr std::int64_t kMaxVocabSize = std::int64_t{1} << 21;  // the limit of `sample`
  static constexpr std::int64_t kMaxHiddenSize = std::int64_t{1} << 18;
  static constexpr std::int64_t kMaxIntermediateSize = std::int64_t{1} << 20;
  static constexpr std::int64_t kMaxLayers = 1024;
  static constexpr std::int64_t kMaxHeads = 4096;
  static constexpr std::int64_t kMaxHeadDim = 1024;
  static constexpr std::int64_t kMaxQuerySize = std::int64_t{1} << 20;  // heads × head_dim
  static constexpr std::int64_t kMaxLabels = 1 << 16;
  static constexpr std::int64_t kMaxPositions = std::int64_t{1} << 27;

  std::string architecture = {};  // "LlamaForCausalLM"; family.h lists the known ones
  // Prefix of the names of the body's tensors: "model.embed_tokens.weight".
  std::string tensor_prefix = "model.";
  std::int64_t vocab_size = 0;
  // Rows of the matrix "score", which a classifier has instead of the language model's head. 0: a language model.
  std::int64_t num_labels = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  // divides num_attention_heads
  std::int64_t head_dim = 0;             // even; need not be hidden_size / num_attention_heads
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool unit_offset_norms = false;  // norms' weights are stored minus one
  bool round_norms_once = false;   // norms' weights multiply the unrounded value; unit_offset_norms implies it
  Activation hidden_act = Activation::kSilu;
  bool tie_word_embeddings = false;  // the LM head is the embedding matrix
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;  // for gate, up and down
  QkNorm qk_norm = QkNorm::kNone;
  // Attention's output is scaled by the sigmoid of a gate that is projected beside q.
  bool attention_gate = false;
  bool attention_sinks = false;                          // each head has a sink: a logit without a value
  std::optional<double> attention_scale = std::nullopt;  // scale of q·k; absent: 1 / √head_dim
  double attention_softcap = 0;                          // soft cap of attention's logits; 0: none
  double logit_softcap = 0;                              // soft cap of the head's logits; 0: none
  double embedding_scale = 1;                            // scale of the embeddings of ids
  // [num_hidden_layers]: 0 for full attention; w: position p sees p - w + 1 … p.
  std::vector<std::int64_t> sliding_windows = {};
  RopeConfig rope = {};
  std::optional<RopeConfig> sliding_rope = std::nullopt;  // the rotation of layers with a window, if it differs
  std::optional<MoeConfig> moe = std::nullopt;
  std::optional<MlaConfig> mla = std::nullopt;
  std::optional<DeltaNetConfig> delta_net = std::nullopt;
  std::optional<Gemma4Config> gemma4 = std::nullopt;
  // Next-token layers behind the body's layers, which draft tokens (layers/draft.h). Families without them leave 0.
  std::int64_t draft_layers = 0;
  std::optional<ImageTokens> images = std::nullopt;   // absent: prompts have only text
  std::optional<VisionConfig> vision = std::nullopt;  // the tower that turns images into rows, if the file has one
  std::optional<StoredDtype> dtype = std::nullopt;    // F32, F16 or BF16, if the file says
  WeightFormats formats = {};                         // how linears are stored; plain if only experts are in MXFP4
  std::optional<TokenId> bos_token_id = std::nullopt;
  std::vector<TokenId> eos_token_ids = {};             // may be empty
  std::optional<TokenId> pad_token_id = std::nullopt;  // absent also if the file has -1 or an id outside the vocabulary
  // The text of the file, for a family that makes its body from it (ModelFamily::make_body); empty for other families.
  std::string json = {};

  // Reads `path`, a model folder, a config.json or a GGUF file, whose metadata then stand for one. If a folder has
  // hf_quant_config.json or else quantize_config.json, its quantisation settings join those of config.json. not_found
  // without such a file; unimplemented for an architecture or feature that this engine lacks (among them some kinds of
  // quantised weights); invalid_argument for everything else that is wrong.
  static Result<ModelConfig> read(const std::string& path, const FamilyRegistry& families);
  // Like read(). `file` names the source in messages. `beside` is the content of hf_quant_config.json or
  // quantize_config.json, or null.
  static Result<ModelConfig> from_json(const Json& json, const std::string& file, const FamilyRegistry& families,
                                       const Json* beside = nullptr);

  std::int64_t query_size() const { return num_attention_heads * head_dim; }      // rows of q, columns of o
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }  // rows of k and of v
  // Returns the columns of the head's logits: tokens, or a classifier's labels.
  std::int64_t num_logits() const { return num_labels > 0 ? num_labels : vocab_size; }
  bool any_sliding_window() const;
  // Returns the number of values of a row that is given instead of an id's embedding.
  std::int64_t embedding_row_values() const { return images ? images->row_values(hidden_size) : hidden_size; }
};

}  // namespace tessera
