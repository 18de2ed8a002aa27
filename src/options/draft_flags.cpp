#include "tessera/options/draft_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/json.h"
#include "tessera/options/values.h"

namespace tessera {
namespace {

constexpr std::string_view kSupported =
    "SUFFIX, also called NGRAM, MTP, also called NEXTN, for checkpoints with a next-token layer, AUTO, EAGLE3 and "
    "STANDALONE, also called draft_model";

// Reads an algorithm's name as SGLang or vLLM spells it, and stores the algorithm in `engine`. vLLM names the
// next-token layers differently for each family, for example "deepseek_mtp" and "qwen3_next_mtp".
Status take_algorithm(const std::string& flag, std::string_view text, EngineOptions& engine) {
  std::string upper(text);
  std::ranges::transform(upper, upper.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  if (upper == "NONE")
    engine.drafts.source = DraftSource::kNone;
  else if (upper == "AUTO")
    engine.drafts.source = DraftSource::kAuto;
  else if (upper == "SUFFIX" || upper == "NGRAM")
    engine.drafts.source = DraftSource::kText;
  else if (upper == "MTP" || upper == "NEXTN" || upper.ends_with("_MTP"))
    engine.drafts.source = DraftSource::kLayer;
  else if (upper == "EAGLE3")
    engine.drafts.source = DraftSource::kEagle;
  else if (upper == "STANDALONE" || upper == "DRAFT_MODEL")
    engine.drafts.source = DraftSource::kModel;
  else
    return unimplemented(
        fmt::format("{}: \"{}\" is not supported; speculative decoding by {} is", flag, text, kSupported));
  return ok_status();
}

Status take_quantization(const std::string& flag, const std::string& text, EngineOptions& engine) {
  engine.drafts.quantization = TRY(parse_start_format(flag, text));
  return ok_status();
}

// Reads the member "method" of vLLM's JSON object. If "method" is missing and "model" is a string, the algorithm is a
// draft model, as in vLLM.
Status take_method(const std::string& flag, const Json& config, EngineOptions& engine) {
  const Json* method = config.find("method");
  if (method != nullptr && method->is_null()) method = nullptr;
  const Json* const model = config.find("model");
  if (method == nullptr && model != nullptr && model->is_string()) return take_algorithm(flag, "draft_model", engine);
  if (method == nullptr || !method->is_string())
    return invalid_argument(
        fmt::format("{}: \"method\" is missing; speculative decoding by suffix, ngram, mtp, eagle3 and draft_model is "
                    "supported, and a \"model\" alone, the folder of a draft model",
                    flag));
  return take_algorithm(flag + ", \"method\"", method->as_string(), engine);
}

// Reads vLLM's JSON object, for example {"method": "ngram", "num_speculative_tokens": 4}, and stores its settings in
// `engine`.
Status take_config(const std::string& flag, const std::string& text, EngineOptions& engine) {
  const Json config = TRY(Json::parse(text, flag));
  if (!config.is_object()) return invalid_argument(fmt::format("{}: {} is not accepted; an object is", flag, text));
  TRY(take_method(flag, config, engine));
  for (const auto& [key, value] : config.as_object()) {
    if (key == "method") continue;
    if (key == "model" && engine.drafts.from_folder() && value.is_string()) {
      engine.drafts.model_path = value.as_string();
      continue;
    }
    if (key == "quantization" && value.is_string()) {
      TRY(take_quantization(flag + ", \"quantization\"", value.as_string(), engine));
      continue;
    }
    if (key != "num_speculative_tokens")
      return unimplemented(fmt::format(
          "{}: \"{}\" is not supported; method, num_speculative_tokens and quantization are, and model for eagle3 and "
          "draft_model",
          flag, key));
    const std::int64_t most = TRY(parse_integer(flag + ", \"num_speculative_tokens\"", value.dump(), {1}));
    (engine.drafts.by_layer() ? engine.drafts.layer_steps : engine.drafts.most_tokens) = most;
  }
  return ok_status();
}

}  // namespace

void add_draft_flags(CommandFlags& add, EngineOptions& engine) {
  add.value(
      "--speculative-algorithm", "NONE|AUTO|SUFFIX|NGRAM|MTP|NEXTN|EAGLE3|STANDALONE",
      "drafts several tokens, from a request's own text, by the checkpoint's next-token layer or by a draft model, "
      "and checks them in one forward; AUTO: by the layer, if the checkpoint has one (NONE)",
      [&engine](const std::string& flag, const std::string& text) { return take_algorithm(flag, text, engine); });
  add.value("--speculative-num-draft-tokens", "N", "most drafts from the text, of a request in a forward, up to 64 (8)",
            [&engine](const std::string& flag, const std::string& text) {
              engine.drafts.most_tokens = TRY(parse_integer(flag, text, {1}));
              return ok_status();
            });
  add.value("--speculative-num-steps", "N",
            "most drafts by the next-token layer or the draft model, of a request in a forward, up to 64 (3)",
            [&engine](const std::string& flag, const std::string& text) {
              engine.drafts.layer_steps = TRY(parse_integer(flag, text, {1}));
              return ok_status();
            });
  add.value("--speculative-draft-model-path", "PATH",
            "the folder of an EAGLE-3 draft layer or of a draft model (STANDALONE)",
            [&engine](const std::string& flag, const std::string& text) -> Status {
              if (text.empty()) return invalid_argument(fmt::format("{}: \"\" is not accepted; a folder is", flag));
              engine.drafts.model_path = text;
              return ok_status();
            });
  add.value(
      "--speculative-draft-model-quantization", "fp8|int8|int4|nvfp4",
      "quantises the draft layer or model, and a copy of the head for its drafts, at the start; the output stays the "
      "model's",
      [&engine](const std::string& flag, const std::string& text) { return take_quantization(flag, text, engine); });
  add.value("--speculative-draft-vocab-size", "N",
            "the next-token layer or the draft model drafts only the ids below N, so that its drafts read N rows of "
            "the head; most "
            "tokenizers give low ids to frequent tokens (all)",
            [&engine](const std::string& flag, const std::string& text) {
              engine.drafts.vocab_size = TRY(parse_integer(flag, text, {1}));
              return ok_status();
            });
  add.value("--speculative-forced-tokens", "X",
            "for measurements: keeps drafts by a draw, so that a step with all drafts gives X tokens on average; texts "
            "are meaningless then",
            [&engine](const std::string& flag, const std::string& text) {
              engine.drafts.forced_tokens = TRY(parse_number(flag, text));
              if (engine.drafts.forced_tokens >= 1) return ok_status();
              return invalid_argument(fmt::format("{}: {} is not accepted; 1 or more is", flag, text));
            });
  add.value("--speculative-config", "JSON",
            "all of it as vLLM says it: {\"method\": \"mtp\", \"num_speculative_tokens\": 3}",
            [&engine](const std::string& flag, const std::string& text) { return take_config(flag, text, engine); });
}

}  // namespace tessera
