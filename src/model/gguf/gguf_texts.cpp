#include "tessera/model/gguf/gguf_texts.h"

#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/model/gguf/gguf_config.h"

namespace tessera {
namespace {

const std::string kModel = "tokenizer.ggml.model";
const std::string kTokens = "tokenizer.ggml.tokens";
const std::string kTypes = "tokenizer.ggml.token_type";
const std::string kMerges = "tokenizer.ggml.merges";
const std::string kScores = "tokenizer.ggml.scores";
const std::string kTemplate = "tokenizer.chat_template";

// Returns the list of strings under a key. Returns an empty list if the key is absent.
Result<std::vector<std::string_view>> strings(const GgufModel& model, const std::string& key) {
  const GgufValue* value = model.find(key);
  if (value == nullptr) return std::vector<std::string_view>();
  auto list = value->strings();
  if (!list) return model.wrong(key, "a list of strings");
  return *std::move(list);
}

Result<std::vector<TokenKind>> read_kinds(const GgufModel& model) {
  std::vector<TokenKind> kinds;
  const GgufValue* value = model.find(kTypes);
  if (value == nullptr) return kinds;
  const auto numbers = value->integers();
  if (!numbers) return model.wrong(kTypes, "a list of integers");
  for (std::size_t id = 0; id < numbers->size(); ++id) {
    const std::int64_t number = (*numbers)[id];
    if (number < 0 || number > static_cast<std::int64_t>(TokenKind::kByte))
      return invalid_argument(fmt::format("{}: {}[{}] is {}; accepted: 0 to 6", model.path(), kTypes, id, number));
    kinds.push_back(number == 0 ? TokenKind::kNormal : static_cast<TokenKind>(number));
  }
  return kinds;
}

Result<std::vector<float>> read_scores(const GgufModel& model) {
  std::vector<float> scores;
  const GgufValue* value = model.find(kScores);
  if (value == nullptr) return scores;
  const auto numbers = value->numbers();
  if (!numbers) return model.wrong(kScores, "a list of numbers");
  for (const double number : *numbers) scores.push_back(static_cast<float>(number));
  return scores;
}

// Returns the id under "tokenizer.ggml.<name>_token_id", which must be below the number of tokens.
Result<std::optional<TokenId>> token_id(const GgufModel& model, const char* name, std::size_t tokens) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  const std::optional<std::int64_t> id = TRY(model.optional_integer(key));
  if (!id) return std::optional<TokenId>();
  if (*id < 0 || static_cast<std::size_t>(*id) >= tokens)
    return model.wrong(key, fmt::format("0 to {}, the ids of the tokens", static_cast<std::int64_t>(tokens) - 1));
  return std::optional(TokenId(static_cast<std::int32_t>(*id)));
}

Status add_templates(const GgufModel& model, TokenizerConfig& config) {
  if (std::optional<std::string> source = TRY(model.optional_string(kTemplate)))
    config.chat_templates.push_back({"default", *std::move(source)});
  std::unordered_set<std::string_view> seen;
  for (const std::string_view name : TRY(strings(model, kTemplate + "s"))) {
    const std::string key = fmt::format("{}.{}", kTemplate, name);
    // Without this check, a file could make the engine copy one long template a million times.
    if (!seen.insert(name).second)
      return invalid_argument(fmt::format("{}: {}s has {} twice; accepted: each name once", model.path(), kTemplate,
                                          clip_text(Json(name).dump())));
    std::string source = TRY(model.string(key));
    config.chat_templates.push_back({std::string(name), std::move(source)});
  }
  return ok_status();
}

}  // namespace

Result<TokenLists> gguf_token_lists(const GgufModel& model) {
  if (model.find(kModel) == nullptr)
    return not_found(fmt::format("{} has no tokenizer: there is no {}", model.path(), kModel));
  TokenLists lists;
  lists.file = model.path();
  lists.model = TRY(model.string(kModel));
  if (lists.model == "none" || lists.model == "no_vocab")
    return not_found(fmt::format("{} has no tokenizer: {} is {}", model.path(), kModel, lists.model));
  lists.pre = TRY(model.optional_string("tokenizer.ggml.pre")).value_or("");
  lists.tokens = TRY(strings(model, kTokens));
  lists.kinds = TRY(read_kinds(model));
  lists.merges = TRY(strings(model, kMerges));
  lists.scores = TRY(read_scores(model));
  lists.bos = TRY(token_id(model, "bos", lists.tokens.size()));
  lists.eos = TRY(token_id(model, "eos", lists.tokens.size()));
  lists.add_bos = TRY(model.optional_boolean("tokenizer.ggml.add_bos_token"));
  lists.add_eos = TRY(model.optional_boolean("tokenizer.ggml.add_eos_token"));
  lists.add_space_prefix = TRY(model.optional_boolean("tokenizer.ggml.add_space_prefix"));
  return lists;
}

Result<TokenizerConfig> gguf_tokenizer_config(const GgufModel& model) {
  TokenizerConfig config;
  const std::vector<std::string_view> tokens = TRY(strings(model, kTokens));
  for (const auto& [name, text] : {std::pair("bos", &config.bos_token), std::pair("eos", &config.eos_token),
                                   std::pair("padding", &config.pad_token), std::pair("unknown", &config.unk_token)})
    if (const std::optional<TokenId> id = TRY(token_id(model, name, tokens.size()))) *text = tokens[id->index()];
  config.add_bos_token = TRY(model.optional_boolean("tokenizer.ggml.add_bos_token"));
  config.add_eos_token = TRY(model.optional_boolean("tokenizer.ggml.add_eos_token"));
  TRY(add_templates(model, config));
  return config;
}

Result<GenerationConfig> gguf_generation_config(const GgufModel& model) {
  Json json = Json::object();
  Json::Array ends;
  for (const TokenId id : TRY(gguf_end_tokens(model))) ends.emplace_back(static_cast<std::int64_t>(id.value()));
  if (!ends.empty()) json.set("eos_token_id", std::move(ends));
  if (const auto id = TRY(model.optional_integer("tokenizer.ggml.bos_token_id"))) json.set("bos_token_id", *id);
  for (const auto& [key, member] : {std::pair("temp", "temperature"), std::pair("top_p", "top_p"),
                                    std::pair("min_p", "min_p"), std::pair("penalty_repeat", "repetition_penalty")})
    if (const auto number = TRY(model.optional_number(fmt::format("general.sampling.{}", key))))
      json.set(member, *number);
  if (const auto top_k = TRY(model.optional_integer("general.sampling.top_k"))) json.set("top_k", *top_k);
  return GenerationConfig::from_json(json, model.path());
}

Result<std::optional<EmbeddingConfig>> gguf_embedding_config(const GgufModel& model) {
  constexpr std::int64_t kMean = 1;
  constexpr std::int64_t kFirst = 2;
  constexpr std::int64_t kLast = 3;
  using Found = std::optional<EmbeddingConfig>;
  const std::string key = TRY(model.string("general.architecture")) + ".pooling_type";
  const std::int64_t type = TRY(model.optional_integer(key)).value_or(0);
  switch (type) {
    case 0: return Found();
    case kMean: return Found(EmbeddingConfig{.pooling = Pooling::kMean, .normalise = true});
    case kFirst: return Found(EmbeddingConfig{.pooling = Pooling::kFirst, .normalise = true});
    case kLast: return Found(EmbeddingConfig{.pooling = Pooling::kLast, .normalise = true});
    default:
      return unimplemented(model
                               .wrong(key,
                                      "0 (a language model), 1 (the mean), 2 (the first token), 3 (the last token), "
                                      "and with qwen3 4 (a reranker)")
                               .message());
  }
}

}  // namespace tessera
