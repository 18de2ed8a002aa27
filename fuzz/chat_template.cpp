// Catches: crashes of the template language's parser and interpreter; templates that exceed their limits.
#include "tessera/text/chat/chat_template.h"
#include "fuzz.h"

using namespace tessera;

namespace {

constexpr std::size_t kMaxOutput = 1 << 20;

const Json& messages() {
  static const Json json = *Json::parse(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": " Hi <|x|> é "}]},
          {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function",
            "function": {"name": "f", "arguments": {"x": [1, 2.5, null, true], "y": {"z": "w"}}}}]},
          {"role": "tool", "content": "42", "tool_call_id": "c1"}])",
      "messages");
  return json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto chat = ChatTemplate::parse(std::string(fuzz::as_text(data, size)));
  if (!chat.ok()) return 0;
  RenderOptions options;
  options.add_generation_prompt = true;
  options.tools =
      *Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])", "tools");
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.extra =
      *Json::parse(R"({"enable_thinking": false, "big": 9223372036854775807, "numbers": [3, 1, 2]})", "extra");
  options.now = 1'700'000'000;
  options.limits = {.max_steps = 200'000, .max_output_bytes = kMaxOutput};
  const auto text = chat->render(messages(), options);
  if (text.ok()) fuzz::require(text->size() <= kMaxOutput, "a rendered text keeps its limit");
  return 0;
}
