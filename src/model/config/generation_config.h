// Reads generation_config.json, which holds the sampling defaults that the checkpoint's authors chose. The file and
// each of its fields are optional.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"

namespace tessera {

struct GenerationConfig {
  std::optional<TokenId> bos_token_id;
  std::vector<TokenId> eos_token_ids;  // if empty, config.json's ids apply
  std::optional<TokenId> pad_token_id;
  std::optional<bool> do_sample;  // if false, decoding is greedy and the temperature is ignored
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;  // 0 or -1 if not limited
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::int64_t> max_new_tokens;

  // Reads the file. `path` is a model folder or the file itself. For a folder without the file, returns an empty
  // GenerationConfig.
  static Result<GenerationConfig> read(const std::string& path);
  static Result<GenerationConfig> from_json(const Json& json, const std::string& file);
};

}  // namespace tessera
