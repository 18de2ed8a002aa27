#include "tessera/server/openai/pooled/embedding_answer.h"

#include <bit>
#include <utility>
#include <vector>

#include "tessera/base/base64.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/pooled_fields.h"
#include "tessera/server/openai/usage.h"

namespace tessera {
namespace {

class EmbeddingAnswer : public Answer {
 public:
  explicit EmbeddingAnswer(EmbeddingStyle style) : style_(std::move(style)), vectors_(style_.inputs) {}

  void on_event(std::size_t index, const RequestEvent&, Completion* end, std::string&) override {
    if (end == nullptr) return;
    usage_.add(*end);
    vectors_[index] = std::move(end->pooled);
  }

  std::string body() override { return parts().all(); }
  Usage usage() const override {
    return {.prompt_tokens = usage_.prompt_tokens, .cached_tokens = usage_.cached_tokens};
  }
  std::optional<JsonParts> large_body() override { return parts(); }

 private:
  JsonParts parts() {
    JsonParts parts;
    parts.once([this](JsonWriter& json) {
      json.object().key("id").value(style_.id).key("object").value("list").key("created").value(unix_time());
      json.key("model").value(style_.model).key("data").array();
    });
    parts.each(vectors_.size(), [this](JsonWriter& json, std::size_t i) {
      json.object().key("object").value("embedding").key("index").value(i).key("embedding");
      write_vector(json, style_.embedding.finish(vectors_[i], style_.dimensions));
      json.end_object();
    });
    return parts.once([this](JsonWriter& json) {
      json.end_array().key("usage");
      write_usage(json, usage());
      json.end_object();
    });
  }

  void write_vector(JsonWriter& json, const std::vector<float>& values) const {
    if (style_.base64) {
      json.value(base64_of(values));
      return;
    }
    json.array();
    for (const float value : values) json.value(value);
    json.end_array();
  }

  EmbeddingStyle style_;
  std::vector<std::vector<float>> vectors_;  // [inputs], as the engine pooled them
  PooledUsage usage_;
};

}  // namespace

std::string base64_of(std::span<const float> values) {
  std::string bytes;
  bytes.reserve(values.size() * sizeof(float));
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (const unsigned shift : {0U, 8U, 16U, 24U}) bytes += static_cast<char>(bits >> shift & 0xffU);
  }
  return to_base64(bytes);
}

std::unique_ptr<Answer> make_embedding_answer(EmbeddingStyle style) {
  return std::make_unique<EmbeddingAnswer>(std::move(style));
}

}  // namespace tessera
