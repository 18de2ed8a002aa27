// Catches: crashes on the bodies of /v1/chat/completions, /v1/completions, /generate and /v1/messages; accepted
// requests with invalid prompts, images or parameters.
#include "fuzz.h"
#include "tessera/engine/request.h"
#include "tessera/server/anthropic/messages_request.h"
#include "tessera/server/images/prompt_images.h"
#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/completion_request.h"
#include "tessera/server/openai/generate_request.h"
#include "tessera/server/served_model.h"
#include "tessera/text/chat/chat_template.h"
#include "tessera/text/tokenizer.h"

using namespace tessera;

namespace {

ServedModel make_model() {
  static const Tokenizer tokenizer = Tokenizer::load(fuzz::source_path("models/demo/tokenizer.json")).value();
  ServedModel model;
  model.name = "demo";
  model.tokenizer = &tokenizer;
  model.vocab_size = 2048;
  model.context_length = 256;
  model.hidden_size = 4;
  model.chat =
      ChatTemplate::parse(
          "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}:{% if m.content is string "
          "%}"
          "{{ m.content }}{% else %}{% for c in m.content %}{{ c.text or '<|endoftext|>' }}{% endfor %}{% endif %};"
          "{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}{% endfor %}")
          .value();
  model.images = ImageInput{.processor = {.max_pixels = 28 * 28 * 64},
                            .placeholder = TokenId(2045),
                            .placeholder_text = "<|endoftext|>",
                            .limits = {.most_bytes = 1 << 16, .most_pixels = 1 << 16}};
  model.tool_call_parser = "hermes";
  model.reasoning_parser = "qwen3";
  return model;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ServedModel model = make_model();
  std::string_view body = fuzz::as_text(data, size);
  constexpr ApiResult<ApiJob> (*kPrepare[])(const ServedModel&, std::string_view) = {
      prepare_chat, prepare_completion, prepare_generate, prepare_messages};
  auto job = kPrepare[fuzz::take_choice(body, std::size(kPrepare))](model, body);
  if (!job.ok()) {
    fuzz::require(job.error().http_status >= 400 && job.error().http_status < 600, "a refusal has a status of errors");
    return 0;
  }
  fuzz::require(!job->requests.empty(), "a job has requests");
  for (const Request& request : job->requests) {
    fuzz::require(check_sampling(request.sampling).ok(), "sampling parameters are within the engine's limits");
    fuzz::require(!request.prompt.empty() || !request.input_embeds.empty(), "a request has a prompt");
    for (const TokenId id : request.prompt)
      fuzz::require(id.value() >= 0 && id.value() < model.vocab_size, "ids of a prompt are the model's");
    std::int64_t end = 0;
    for (const PromptImage& image : request.images) {
      fuzz::require(image.first_token >= end, "images follow each other");
      end = image.first_token + image.patches->tokens();
      fuzz::require(end <= std::ssize(request.prompt), "images are within the prompt");
      for (std::int64_t i = image.first_token; i < end; ++i)
        fuzz::require(request.prompt[static_cast<std::size_t>(i)] == model.images->placeholder, "an image has its ids");
    }
    if (!request.images.empty())
      fuzz::require(count_placeholders(*model.images, request.prompt) == image_tokens(request.images),
                    "no other ids stand for images");
  }
  return 0;
}
