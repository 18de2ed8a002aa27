// Splits what a reasoning model writes, "<think>…</think>answer", into reasoning and content, as it comes.
//
//   ReasoningParser parser = TRY(ReasoningParser::create("qwen3", opens_reasoning(prompt)));
//   for (delta : deltas) send(parser.push(delta));
//   send(parser.finish());
//
//   qwen3, deepseek-v3, glm45    <think>…</think> at the beginning of the text, or the prompt has the opening tag
//   deepseek-r1, qwen3-thinking  the text begins inside the reasoning, with or without "<think>"
//   mistral                      [THINK]…[/THINK] at the beginning of the text
//   gpt-oss                      messages of the channel "analysis" (harmony_reasoning.h)
//   none                         all text is content
//
// Some parsers have further names: those of vLLM. Reasoning that is never closed takes the rest of the text. The
// concatenated answers do not depend on where the text was cut. An object reads one text, on one thread at a time.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/tools/reasoning_format.h"

namespace tessera {

class ReasoningParser {
 public:
  // `opened`: the prompt ends inside the reasoning. Returns invalid_argument for an unknown `name`.
  static Result<ReasoningParser> create(std::string_view name, bool opened);

  ReasoningText push(std::string_view text) { return format_->push(text); }
  // Returns the text that was held back.
  ReasoningText finish() { return format_->finish(); }
  // Whether the next text belongs to the reasoning, as far as is known.
  bool in_reasoning() const { return format_->in_reasoning(); }

 private:
  explicit ReasoningParser(std::unique_ptr<ReasoningFormat> format) : format_(std::move(format)) {}
  std::unique_ptr<ReasoningFormat> format_;
};

// Returns the names that create() takes.
std::vector<std::string_view> reasoning_parser_names();
// Returns the parser's name for a model with this chat template; "" if the template knows no reasoning.
std::string_view guess_reasoning_parser(std::string_view chat_template);
// Whether the parser's marks are special tokens of the model. The text must then contain them.
bool reads_special_tokens(std::string_view name);

// Whether the model's turn begins inside its reasoning: the prompt ends with an opening tag.
bool opens_reasoning(std::string_view prompt);
// Whether a message that is to be continued ends inside the reasoning, or after it.
bool is_inside_reasoning(std::string_view begun);
bool closes_reasoning(std::string_view begun);

}  // namespace tessera
