// Catches: crashes on the bodies of /v1/chat/completions, /v1/completions and /generate, and requests that are taken
// with prompts or parameters the engine must not see.
#include "fuzz.h"
#include "tessera/engine/request.h"
#include "tessera/server/chat_request.h"
#include "tessera/server/completion_request.h"
#include "tessera/server/generate_request.h"
#include "tessera/server/served_model.h"
#include "tessera/text/chat_template.h"
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
  model.chat = ChatTemplate::parse(
                   "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}:{{ m.content }};"
                   "{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}{% endfor %}")
                   .value();
  model.tool_call_parser = "hermes";
  model.reasoning_parser = "qwen3";
  return model;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ServedModel model = make_model();
  std::string_view body = fuzz::as_text(data, size);
  constexpr ApiResult<ApiJob> (*kPrepare[])(const ServedModel&, std::string_view) = {prepare_chat, prepare_completion,
                                                                                     prepare_generate};
  auto job = kPrepare[fuzz::take_choice(body, 3)](model, body);
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
  }
  return 0;
}
