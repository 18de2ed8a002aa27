// Reads the settings of a low-rank adapter from adapter_config.json of a PEFT folder
// (https://huggingface.co/docs/peft).
//
// The tensors in the adapter's file decide which modules the adapter changes. The settings give the scale and the LoRA
// rank of each module, and say which variant of LoRA the adapter uses. Unsupported variants are refused, and the error
// names the setting.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/formats/name_patterns.h"

namespace tessera {

class AdapterConfig {
 public:
  // Reads adapter_config.json in `folder`. Returns not_found if the file does not exist, and data_loss if it cannot be
  // read. Returns invalid_argument if it is malformed or a value is out of range. Returns unimplemented for an
  // unsupported variant of LoRA, such as DoRA or modules_to_save with other modules than the head and the embedding.
  // The message names the setting.
  static Result<AdapterConfig> read(const std::string& folder);

  // Returns the LoRA rank that the settings give to a module, such as "model.layers.0.self_attn.q_proj".
  Result<std::int64_t> rank_of(std::string_view module) const;
  // Returns the factor by which B · A of a module is multiplied: alpha / rank or, with use_rslora, alpha / √rank.
  Result<double> scale_of(std::string_view module, std::int64_t rank) const;
  // Returns the last word of each module in modules_to_save: "lm_head" or "embed_tokens".
  const std::vector<std::string>& saved() const { return saved_; }
  // Returns whether a change to the embedding or to the head applies to both (ensure_weight_tying).
  bool ties_weights() const { return ties_weights_; }
  const std::string& base_model() const { return base_model_; }  // base_model_name_or_path; may be empty

 private:
  // Pairs of a pattern and a value. The value applies to the modules whose name ends with a match of the pattern. If
  // several patterns match, the first one counts.
  template <class T>
  using ByModule = std::vector<std::pair<NamePatterns, T>>;

  std::int64_t rank_ = 8;
  double alpha_ = 8;
  bool rslora_ = false;
  bool ties_weights_ = false;
  std::vector<std::string> saved_;
  ByModule<std::int64_t> ranks_;
  ByModule<double> alphas_;
  std::string base_model_;
};

}  // namespace tessera
