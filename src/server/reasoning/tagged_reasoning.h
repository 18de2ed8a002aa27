// Reasoning at the beginning of the text, between an opening and a closing tag. For example, in "<think>I must
// add.</think>It is 2." the reasoning is "I must add.".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/server/tools/marker_finder.h"
#include "tessera/server/tools/reasoning_format.h"

namespace tessera {

struct ReasoningTags {
  std::string_view opening;
  std::string_view closing;
};
inline constexpr ReasoningTags kThinkTags{.opening = "<think>", .closing = "</think>"};
inline constexpr ReasoningTags kMistralTags{.opening = "[THINK]", .closing = "[/THINK]"};

class TaggedReasoning final : public ReasoningFormat {
 public:
  // `inside`: the text begins inside the reasoning, with or without the opening tag. Reasoning that is never closed
  // extends to the end of the text. `tags` must outlive the object.
  TaggedReasoning(const ReasoningTags& tags, bool inside);

  ReasoningText push(std::string_view text) override;
  ReasoningText finish() override;
  bool in_reasoning() const override { return state_ == State::kInside; }

 private:
  enum class State : std::uint8_t { kBeginning, kInside, kBehind, kContent };
  void push_beginning(char c, ReasoningText& out);
  void push_inside(char c, ReasoningText& out);
  void begin_content(std::string_view more, ReasoningText& out);

  const ReasoningTags& tags_;
  State state_;
  MarkerFinder finder_;
  std::string spaces_;  // white space before an opening tag
  TrimmedText reasoning_;
};

}  // namespace tessera
