#include "tessera/server/ollama/ollama_embed.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/prompts.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/ollama/ollama_fields.h"
#include "tessera/server/openai/pooled/pooled_fields.h"

namespace tessera {
namespace {

struct VectorStyle {
  std::string model{};
  EmbeddingConfig embedding{};
  std::int64_t dimensions = 0;
  std::size_t inputs = 0;
  bool list = true;  // true for /api/embed, false for /api/embeddings
};

class VectorAnswer final : public Answer {
 public:
  explicit VectorAnswer(VectorStyle style) : style_(std::move(style)), vectors_(style_.inputs) {}

  void on_event(std::size_t index, const RequestEvent&, Completion* end, std::string&) override {
    if (end == nullptr) return;
    usage_.add(*end);
    longest_ms_ = std::max(longest_ms_, end->total_ms);
    vectors_[index] = std::move(end->pooled);
  }

  std::string body() override { return parts().all(); }
  std::optional<JsonParts> large_body() override { return parts(); }

 private:
  JsonParts parts() {
    JsonParts parts;
    if (!style_.list) {
      return parts.once([this](JsonWriter& json) {
        write_vector(json.object().key("embedding"), 0);
        json.end_object();
      });
    }
    parts.once([this](JsonWriter& json) { json.object().key("model").value(style_.model).key("embeddings").array(); });
    parts.each(vectors_.size(), [this](JsonWriter& json, std::size_t i) { write_vector(json, i); });
    return parts.once([this](JsonWriter& json) {
      json.end_array().key("total_duration").value(std::int64_t{std::llround(longest_ms_ * 1e6)});
      json.key("load_duration").value(0).key("prompt_eval_count").value(usage_.prompt_tokens).end_object();
    });
  }

  void write_vector(JsonWriter& json, std::size_t i) const {
    json.array();
    for (const float value : style_.embedding.finish(vectors_[i], style_.dimensions)) json.value(value);
    json.end_array();
  }

  VectorStyle style_;
  std::vector<std::vector<float>> vectors_;  // one for each input, as the engine pooled it
  PooledUsage usage_;
  double longest_ms_ = 0;
};

// Makes the job that embeds the texts in the field `key`.
ApiResult<ApiJob> vector_job(const ApiFields& fields, const ServedModel& model, const std::string& key,
                             const Truncation& truncation, VectorStyle style) {
  TRY(read_ollama_output(fields, model));  // the options have no effect on vectors, but wrong ones are errors
  style.model = model.name;
  style.embedding = *model.embedding;
  style.embedding.normalise = true;
  PooledFields pooled;
  pooled.truncation = truncation;
  Prompts prompts = TRY(read_prompts(fields, key, model, pooled.add_special_tokens));
  style.inputs = prompts.ids.size();
  ApiJob job{.id = make_id("ollama-")};
  FanOut fan_out;
  for (std::vector<TokenId>& prompt : prompts.ids) {
    Request request = TRY(pooled.make_request(std::move(prompt), model, key));
    TRY(fan_out.add(1, std::ssize(request.prompt), key));
    request.pooling = model.embedding->pooling;
    job.requests.push_back(std::move(request));
  }
  job.answer = std::make_unique<VectorAnswer>(std::move(style));
  return job;
}

Truncation to_context(const ServedModel& model) { return {.most = model.context_length, .keeps_first = true}; }

}  // namespace

ApiResult<ApiJob> prepare_ollama_embed(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_ollama_request(model, fields, request_object::kOllamaEmbed, &ServedModel::check_embeds));
  VectorStyle style;
  style.dimensions = TRY(fields.integer("dimensions", 1, model.hidden_size)).value_or(model.hidden_size);
  const bool truncates = TRY(fields.boolean_or("truncate", true));
  return vector_job(fields, model, "input", truncates ? to_context(model) : Truncation(), std::move(style));
}

ApiResult<ApiJob> prepare_ollama_embeddings(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_ollama_request(model, fields, request_object::kOllamaEmbeddings, &ServedModel::check_embeds));
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr || !prompt->is_string()) return fields.wrong("prompt", "a string");
  return vector_job(fields, model, "prompt", to_context(model), {.dimensions = model.hidden_size, .list = false});
}

}  // namespace tessera
