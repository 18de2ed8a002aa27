#include "tessera/server/openai/pooled/embedding_answer.h"

#include <bit>
#include <utility>
#include <vector>

#include "tessera/base/base64.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/openai/pooled/list_answer.h"

namespace tessera {
namespace {

class EmbeddingAnswer : public ListAnswer {
 public:
  explicit EmbeddingAnswer(EmbeddingStyle style)
      : ListAnswer(style.id, style.model, style.inputs), style_(std::move(style)) {}

 private:
  std::vector<float>& result_of(Completion& end) const override { return end.pooled; }
  void begin_entry(JsonWriter& json) const override { json.key("object").value("embedding"); }
  void write_entry(JsonWriter& json, const std::vector<float>& pooled) const override {
    json.key("embedding");
    write_vector(json, style_.embedding.finish(pooled, style_.dimensions));
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
