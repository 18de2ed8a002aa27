// Renders chat templates for templates_test.py. Each line of standard input is a JSON object of the first form below.
// For each of these lines, the program writes one line with an object of the second form to standard output.
//
//   {"source": "…", "messages": […], "tools": …, "extra": {…}, "generate": true, "now": 1700000000}
//   {"text": "…"} or {"error": "line 1, column 2: …"}
#include <cstdio>
#include <iostream>
#include <string>

#include "tessera/base/json.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {
namespace {

Result<std::string> render(const std::string& line) {
  const Json job = TRY(Json::parse(line, "the job"));
  const ChatTemplate chat = TRY(ChatTemplate::parse(job.find("source")->as_string(), "t"));
  RenderOptions options;
  options.add_generation_prompt = job.find("generate")->as_bool();
  options.tools = *job.find("tools");
  options.extra = *job.find("extra");
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.now = job.find("now")->as_int();
  return chat.render(*job.find("messages"), options);
}

}  // namespace
}  // namespace tessera

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = tessera::render(line);
    tessera::Json answer = tessera::Json::object();
    if (text.ok()) {
      answer.set("text", *text);
    } else {
      answer.set("error", text.status().message());
    }
    std::puts(answer.dump().c_str());
  }
  return 0;
}
