#include "tessera/model/config/generation_config.h"

#include <filesystem>

#include "tessera/base/json_fields.h"
#include "tessera/model/config/config.h"
#include "tessera/model/weights/model_path.h"

namespace tessera {

Result<GenerationConfig> GenerationConfig::read(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path file = path;
  if (is_folder(file)) {
    std::error_code error;
    file /= "generation_config.json";
    if (!fs::exists(file, error)) return GenerationConfig{};
  }
  const Json json = TRY(read_json_object(file.string()));
  return from_json(json, file.string());
}

Result<GenerationConfig> GenerationConfig::from_json(const Json& json, const std::string& file) {
  const Fields fields(json, file);
  GenerationConfig config;
  const std::vector<TokenId> bos = TRY(fields.token_ids("bos_token_id", ModelConfig::kMaxVocabSize));
  if (bos.size() > 1) return fields.wrong("bos_token_id", "one token id");
  if (!bos.empty()) config.bos_token_id = bos[0];
  config.eos_token_ids = TRY(fields.token_ids("eos_token_id", ModelConfig::kMaxVocabSize));
  const std::optional<std::int64_t> pad = TRY(fields.optional_int("pad_token_id", -1, ModelConfig::kMaxVocabSize));
  if (pad.value_or(-1) >= 0) config.pad_token_id = TokenId(static_cast<std::int32_t>(*pad));
  config.do_sample = TRY(fields.optional_bool("do_sample"));
  config.temperature = TRY(fields.optional_number("temperature", 0.0, 100.0));
  config.top_k = TRY(fields.optional_int("top_k", -1, ModelConfig::kMaxVocabSize));
  config.top_p = TRY(fields.optional_number("top_p", 0.0, 1.0));
  config.min_p = TRY(fields.optional_number("min_p", 0.0, 1.0));
  config.repetition_penalty = TRY(fields.optional_number("repetition_penalty", 1e-3, 1e3));
  config.max_new_tokens = TRY(fields.optional_int("max_new_tokens", 1, ModelConfig::kMaxPositions));
  return config;
}

}  // namespace tessera
