// Splits what a reasoning model writes, "<think>…</think>answer", into reasoning and content, as it comes.
//
//   ReasoningParser parser = TRY(ReasoningParser::create("qwen3", opens_reasoning(prompt)));
//   for (delta : deltas) send(parser.push(delta));
//   send(parser.finish());
//
// The parts of all answers together do not depend on where the text was cut. One text per object, one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/marker_finder.h"

namespace tessera {

struct ReasoningText {
  std::string reasoning;  // without the tags, and without white space at its ends
  std::string content;    // behind reasoning: without white space at its beginning
};

class ReasoningParser {
 public:
  // `name`: "deepseek-r1": the text begins inside the reasoning, with or without "<think>"; "qwen3": where it begins
  // with
  // "<think>", or the prompt did (`opened`); "none": all is content. Reasoning that is never closed is all of the text.
  static Result<ReasoningParser> create(std::string_view name, bool opened);

  ReasoningText push(std::string_view text);
  // Hands out the text that was held back.
  ReasoningText finish();
  // Whether what comes next belongs to the reasoning, as far as is known.
  bool in_reasoning() const { return state_ == State::kInside; }

 private:
  enum class State { kBeginning, kInside, kBehind, kContent };
  explicit ReasoningParser(State state);
  void push_beginning(char c, ReasoningText& out);
  void push_inside(char c, ReasoningText& out);
  void add_reasoning(std::string_view text, ReasoningText& out);
  void begin_content(std::string_view more, ReasoningText& out);

  State state_;
  MarkerFinder tags_;
  std::string spaces_;       // before an opening tag, or inside: white space that may be the last
  bool nothing_yet_ = true;  // no reasoning but white space
};

// The names that create() takes.
std::vector<std::string_view> reasoning_parser_names();
// For a model with this chat template; "" where the template knows no reasoning.
std::string_view guess_reasoning_parser(std::string_view chat_template);

}  // namespace tessera
