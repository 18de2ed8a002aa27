#include "tessera/server/served_model.h"
#include "tessera/server/work/request_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/work/text_work.h"

namespace tessera {
namespace {

// Returns the error for a request that exceeds the context. Clients recognise the error by the message's first
// sentence. From the numbers in the second sentence, they compute how far to shorten the request. Both sentences are
// worded like OpenAI's and vLLM's.
ApiError context_overflow(std::int64_t context_length, std::int64_t length, std::int64_t wanted,
                          const std::string& param) {
  const std::string_view prompt = param == "messages" ? "messages" : "prompt";
  ApiError error = invalid_field(
      param,
      fmt::format("This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the "
                  "{}, {} in the completion). Please reduce the length of the {} or completion.",
                  context_length, length + wanted, length, prompt, wanted, prompt));
  error.code = "context_length_exceeded";
  return error;
}

// Names the routes of a classifier.
std::string_view classifier_routes(std::int64_t num_labels) {
  return num_labels == 1 ? "/v1/classify, /v1/rerank and /v1/score" : "/v1/classify";
}

}  // namespace

std::vector<std::string> ServedModel::names() const {
  std::vector<std::string> all = {name};
  all.insert(all.end(), aliases.begin(), aliases.end());
  return all;
}

ApiStatus ServedModel::check_name(const Json& body) const {
  const std::optional<std::string> asked = TRY(ApiFields(body).string("model"));
  if (!asked || *asked == name || std::ranges::find(aliases, *asked) != aliases.end()) return api_ok();
  std::vector<std::string> known = names();
  if (adapters != nullptr)
    for (const auto& [adapter, folder] : adapters->all()) known.push_back(adapter);
  return ApiError{.http_status = 404,
                  .message = fmt::format("the model \"{}\" does not exist here; accepted: \"{}\"", clip_text(*asked),
                                         fmt::join(known, "\", \"")),
                  .param = "model",
                  .code = "model_not_found"};
}

ApiStatus ServedModel::check_named(const Json& body) const {
  const Json* given = body.find("model");
  if (requires_name && (given == nullptr || given->is_null()))
    return invalid_field("model", fmt::format("request: field \"model\" is missing; accepted: \"{}\"", name));
  return check_name(body);
}

ApiStatus ServedModel::check_routed_name(const Json& body) const {
  const Json* given = body.find("model");
  if (given != nullptr && *given == Json("unknown")) return api_ok();
  return check_name(body);
}

std::string ServedModel::adapter_of(std::string_view asked) const {
  if (adapters == nullptr) return "";
  const std::vector<std::string> own = names();
  if (std::ranges::find(own, asked) != own.end()) return "";
  if (adapters->has(asked)) return std::string(asked);
  for (const std::string& base : own) {
    if (!asked.starts_with(base + ":")) continue;
    const std::string_view adapter = asked.substr(base.size() + 1);
    if (adapters->has(adapter)) return std::string(adapter);
  }
  return "";
}

ApiResult<std::string> ServedModel::named_adapter(const Json& body,
                                                  ApiStatus (ServedModel::*check_model)(const Json& body) const) const {
  const std::optional<std::string> asked = TRY(ApiFields(body).string("model"));
  std::string adapter = asked ? adapter_of(*asked) : "";
  if (adapter.empty()) TRY((this->*check_model)(body));
  return adapter;
}

ApiResult<std::string> ServedModel::adapter_by_path(const ApiFields& fields, std::string named) const {
  const std::optional<std::string> asked = TRY(fields.string("lora_path"));
  if (!asked || asked->empty()) return named;
  if (adapters == nullptr)
    return unsupported_field("lora_path", "the server serves no adapters; accepted: a server with --enable-lora");
  if (!adapters->has(*asked))
    return ApiError{
        .http_status = 404,
        .message = fmt::format("no adapter \"{}\" is loaded; loaded: {}", clip_text(*asked), adapters->json()),
        .param = "lora_path",
        .code = "model_not_found"};
  if (!named.empty() && named != *asked)
    return invalid_field("lora_path", fmt::format("\"lora_path\" is \"{}\", but \"model\" names the adapter \"{}\"",
                                                  clip_text(*asked), named));
  return *asked;
}

ApiStatus ServedModel::check_generates() const {
  if (generates()) return api_ok();
  return unsupported_field(
      "model", embedding ? fmt::format("\"{}\" makes embeddings and generates no text; accepted: /v1/embeddings, "
                                       "/v1/rerank and /v1/score",
                                       name)
                         : fmt::format("\"{}\" is a classifier and generates no text; accepted: {}", name,
                                       classifier_routes(num_labels)));
}

ApiStatus ServedModel::check_embeds() const {
  if (embedding) return api_ok();
  return unsupported_field(
      "model",
      num_labels > 0
          ? fmt::format("\"{}\" is a classifier and makes no embeddings; accepted: {}", name,
                        classifier_routes(num_labels))
          : fmt::format("\"{}\" is served to generate text; accepted: a server with --is-embedding, or a model "
                        "whose modules.json names a Pooling",
                        name));
}

ApiStatus ServedModel::check_classifies() const {
  if (num_labels > 0) return api_ok();
  return unsupported_field("model",
                           fmt::format("\"{}\" {}; accepted: a classifier, whose config.json names an architecture "
                                       "\"…ForSequenceClassification\"",
                                       name, embedding ? "makes embeddings" : "generates text"));
}

ApiStatus ServedModel::check_scores_pairs() const {
  if (embedding || num_labels == 1) return api_ok();
  return unsupported_field(
      "model",
      num_labels > 1
          ? fmt::format("\"{}\" has {} labels; accepted: {}, or a classifier with one label, or an embedding model",
                        name, num_labels, classifier_routes(num_labels))
          : fmt::format(
                "\"{}\" generates text; accepted: /v1/score with query, items and label_token_ids, a classifier "
                "with one label, or an embedding model (--is-embedding)",
                name));
}

ApiResult<std::vector<TokenId>> ServedModel::encode(std::string_view text, bool add_special_tokens,
                                                    const std::string& param) const {
  if (tokenizer == nullptr) {
    return unsupported_field(param, "the model was loaded without a tokenizer; accepted: token ids");
  }
  TRY(take_on_text(text.size()));
  MemoryCharge charge(memory.get());
  TRY(charge.set(encoding_bytes(text.size())));
  Result<std::vector<TokenId>> ids =
      tokenizer->encode(text, {.add_special_tokens = add_special_tokens, .spans = spans.get()});
  if (!ids.ok()) return invalid_field(param, ids.status().message());
  return *std::move(ids);
}

ApiError ServedModel::too_long(const std::string& param, std::string_view why) const {
  ApiError error = invalid_field(
      param,
      fmt::format("This model's maximum context length is {} tokens. However, the {} are too long to be counted: "
                  "{}. Please reduce the length of the {}.",
                  context_length, param, why, param));
  error.code = "context_length_exceeded";
  return error;
}

ApiStatus ServedModel::set_length(Request& request, std::optional<std::int64_t> asked, std::int64_t otherwise,
                                  const std::string& param) const {
  if (request.prompt.empty()) return invalid_field(param, "the prompt has no tokens; at least one is needed");
  for (const TokenId id : request.prompt) {
    if (id.value() >= 0 && id.value() < vocab_size) continue;
    return invalid_field(param,
                         fmt::format("token id {} in the prompt; accepted: 0 to {}", id.value(), vocab_size - 1));
  }
  const std::int64_t length = std::ssize(request.prompt);
  const std::int64_t wanted = asked.value_or(1);
  if (length > context_length || wanted > context_length - length)
    return context_overflow(context_length, length, wanted, param);
  request.stop.max_new_tokens = asked.value_or(std::min(otherwise, context_length - length));
  return api_ok();
}

}  // namespace tessera
