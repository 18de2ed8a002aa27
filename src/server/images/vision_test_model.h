// A model that reads images, for tests of requests: the demo's tokenizer with image tokens, a template that writes
// them, and no engine. For tests only.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/base/base64.h"
#include "tessera/base/json.h"
#include "tessera/server/served_model.h"
#include "tessera/server/test_model.h"

namespace tessera::test {

inline constexpr int kVisionStart = 2048;
inline constexpr int kVisionEnd = 2049;
inline constexpr int kImagePad = 2050;

inline const Tokenizer& vision_tokenizer() {
  static const Tokenizer tokenizer = [] {
    Json json = *Json::read_file(testing::source_path("models/demo/tokenizer.json"));
    Json added = *json.find("added_tokens");
    for (const auto& [id, content] : {std::pair(kVisionStart, "<|vision_start|>"),
                                      std::pair(kVisionEnd, "<|vision_end|>"), std::pair(kImagePad, "<|image_pad|>")}) {
      Json token = added.as_array().back();
      token.set("id", id).set("content", content);
      added.push_back(std::move(token));
    }
    json.set("added_tokens", std::move(added));
    return *Tokenizer::parse(json.dump(), "tokenizer.json");
  }();
  return tokenizer;
}

// A template that writes contents as Qwen's templates do.
inline constexpr const char* kVisionTemplate =
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' or 'image' in c or 'image_url' in c %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in c %}{{ c.text }}{% endif %}{% endfor %}{% endif %};{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

// Returns the model. An image token covers 28 × 28 pixels. Images have 4 to 64 tokens.
inline ServedModel vision_model() {
  ServedModel model = test_model();
  model.tokenizer = &vision_tokenizer();
  model.vocab_size = 2051;
  model.chat = *ChatTemplate::parse(kVisionTemplate);
  model.images = ImageInput{.processor = {.max_pixels = 28 * 28 * 64},
                            .placeholder = TokenId(kImagePad),
                            .placeholder_text = "<|image_pad|>"};
  return model;
}

// Returns an image file in which `red` is the red value of each pixel.
inline std::string ppm(int width, int height, int red = 7) {
  std::string file = fmt::format("P6\n{} {}\n255\n", width, height);
  for (int i = 0; i < width * height; ++i) file += {static_cast<char>(red), 1, 2};
  return file;
}

inline std::string data_url(std::string_view file, std::string_view type = "image/png") {
  return fmt::format("data:{};base64,{}", type, to_base64(file));
}

inline std::string image_part(const std::string& url) {
  return fmt::format(R"({{"type": "image_url", "image_url": {{"url": "{}"}}}})", url);
}
inline std::string text_part(const std::string& text) {
  return fmt::format(R"({{"type": "text", "text": "{}"}})", text);
}
// Returns a chat whose second message has these parts.
inline std::string image_chat(const std::string& parts, const std::string& more = "") {
  return fmt::format(R"({{"messages": [{{"role": "system", "content": "s"}}, {{"role": "user", "content": [{}]}}]{}}})",
                     parts, more);
}

}  // namespace tessera::test
