// generation_config.json: the sampling defaults of a checkpoint's authors. The file and each field are optional.
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
  std::vector<TokenId> eos_token_ids;  // empty: those of config.json apply
  std::optional<TokenId> pad_token_id;
  std::optional<bool> do_sample;  // false: greedy, whatever the temperature is
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;  // 0 or -1: off
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::int64_t> max_new_tokens;

  // Reads the file. `path`: a model folder or the file itself. A folder without the file gives an empty
  // GenerationConfig.
  static Result<GenerationConfig> read(const std::string& path);
  static Result<GenerationConfig> from_json(const Json& json, const std::string& file);
};

}  // namespace tessera
