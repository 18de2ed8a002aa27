// Splits a reasoning model's output, "<think>…</think>answer", into reasoning and content while it arrives.
//
//   ReasoningParser parser = TRY(ReasoningParser::create("qwen3", opens_reasoning(prompt)));
//   for (delta : deltas) send(parser.push(delta));
//   send(parser.finish());
//
//   name                         place of the reasoning
//   qwen3, deepseek-v3, glm45    <think>…</think> at the beginning of the text, or the prompt has the opening tag
//   deepseek-r1, qwen3-thinking  the text begins inside the reasoning, with or without "<think>"
//   mistral                      [THINK]…[/THINK] at the beginning of the text
//   gpt-oss                      messages of the channel "analysis" (harmony_reasoning.h)
//   none                         all text is content
//
// Some parsers also have the names that vLLM gives them. Reasoning that is never closed extends to the end of the text.
// The concatenated results do not depend on where the text was cut. An object reads one text, on one thread at a time.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/tools/reasoning_format.h"
#include "tessera/text/chat/chat_format.h"

namespace tessera {

class ReasoningParser {
 public:
  // `opened`: the prompt ends inside the reasoning. Returns invalid_argument for an unknown `name`.
  static Result<ReasoningParser> create(std::string_view name, bool opened);

  ReasoningText push(std::string_view text) { return format_->push(text); }
  // Returns the text that was held back.
  ReasoningText finish() { return format_->finish(); }
  // Returns whether the next text belongs to the reasoning, as far as the text so far shows.
  bool in_reasoning() const { return format_->in_reasoning(); }

 private:
  explicit ReasoningParser(std::unique_ptr<ReasoningFormat> format) : format_(std::move(format)) {}
  std::unique_ptr<ReasoningFormat> format_;
};

// Returns the names that create() accepts.
std::vector<std::string_view> reasoning_parser_names();
// Returns the name of the parser for a model with this chat template; "" if the template has no reasoning.
std::string_view guess_reasoning_parser(std::string_view chat_template);
// Returns the marks around the reasoning that the parser reads; empty ones for "none" and for unknown names.
ReasoningMarks reasoning_marks(std::string_view name);
// Returns whether a text begins inside the reasoning, whatever the prompt says.
bool begins_in_reasoning(std::string_view name);
// Returns whether a text may have several pieces of reasoning.
bool repeats_reasoning(std::string_view name);
// Returns whether the parser's marks are special tokens of the model. The text must then be decoded with its special
// tokens.
bool reads_special_tokens(std::string_view name);

// Returns whether the model's turn begins inside its reasoning, that is, whether the prompt ends with an opening tag.
bool opens_reasoning(std::string_view prompt);
// `begun` is a message that the model continues. The first function returns whether the message ends inside the
// reasoning. The second function returns whether the message ends after the reasoning.
bool is_inside_reasoning(std::string_view begun);
bool closes_reasoning(std::string_view begun);

}  // namespace tessera
