// The settings of a low-rank adapter: adapter_config.json of a PEFT folder (https://huggingface.co/docs/peft).
//
// What an adapter changes is decided by the tensors in its file. The settings give the scale of each module, and say
// whether the adapter is of a kind that is served. The other kinds are refused by the name of their setting.
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
  // Reads adapter_config.json in `folder`. not_found if there is none; data_loss or invalid_argument for a value out of
  // range; unimplemented, with the setting's name, for what is not served: DoRA, modules_to_save and others.
  static Result<AdapterConfig> read(const std::string& folder);

  // Returns the rank that the settings give a module, "model.layers.0.self_attn.q_proj".
  Result<std::int64_t> rank_of(std::string_view module) const;
  // Returns the factor of B · A for a module: alpha / rank or, with use_rslora, alpha / √rank.
  Result<double> scale_of(std::string_view module, std::int64_t rank) const;
  const std::string& base_model() const { return base_model_; }  // base_model_name_or_path; may be empty

 private:
  // Values for modules whose name ends with a match of the pattern; the first match counts.
  template <class T>
  using ByModule = std::vector<std::pair<NamePatterns, T>>;

  std::int64_t rank_ = 8;
  double alpha_ = 8;
  bool rslora_ = false;
  ByModule<std::int64_t> ranks_;
  ByModule<double> alphas_;
  std::string base_model_;
};

}  // namespace tessera
