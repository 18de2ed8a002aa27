// A model for tests of requests and answers: the bundled tokenizer and template, without an engine. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tessera/device/testing/environment.h"
#include "tessera/server/served_model.h"

namespace tessera::test {

inline const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = *Tokenizer::load(testing::source_path("models/demo/tokenizer.json"));
  return tokenizer;
}

inline std::vector<TokenId> encode(const std::string& text) { return *demo_tokenizer().encode(text); }

// This template writes "<tools>" if there are tools. Then, for each message, it writes "role:content;" and, for each of
// the message's calls, "name(x);", where x is the call's argument "x".
inline constexpr const char* kTestTemplate =
    "{% if tools %}<tools>{% endif %}{% for m in messages %}{{ m.role }}:{{ m.content }};"
    "{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments.x }});{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}{% if enable_thinking is false %}<think></think>{% endif %}";

inline ServedModel test_model() {
  ServedModel model;
  model.name = "demo";
  model.path = "models/demo";
  model.created = 1;
  model.tokenizer = &demo_tokenizer();
  model.vocab_size = 2048;
  model.context_length = 256;
  model.hidden_size = 4;
  model.chat = *ChatTemplate::parse(kTestTemplate);
  return model;
}

}  // namespace tessera::test
