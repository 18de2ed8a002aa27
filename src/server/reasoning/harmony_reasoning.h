// Splits the messages of gpt-oss (harmony.h). Messages of the channel "analysis" are reasoning, and all other messages
// are content. The headers and end tags are removed. Only a call keeps its header and its end tag in the content, so
// that ToolCallParser "gpt-oss" finds it. A line break separates consecutive messages of one kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/server/tools/marker_finder.h"
#include "tessera/server/tools/reasoning_format.h"

namespace tessera {

class HarmonyReasoning final : public ReasoningFormat {
 public:
  // `inside`: the prompt ends with the header of an analysis message. Otherwise, a text that begins with a header is a
  // new turn, and any other text continues an answer whose beginning is in the prompt.
  explicit HarmonyReasoning(bool inside);

  ReasoningText push(std::string_view text) override;
  ReasoningText finish() override;
  bool in_reasoning() const override { return state_ == State::kReasoning; }

 private:
  enum class State : std::uint8_t {
    kBeginning,
    kBetween,  // between two messages
    kHeader,
    kReasoning,
    kContent,
    kCall,
  };

  void take_text(std::string_view text, ReasoningText& out);
  void take_beginning(std::string_view text, ReasoningText& out);
  void take_tag(std::string_view tag, ReasoningText& out);
  void begin_body(ReasoningText& out);
  void flush_header(ReasoningText& out);
  void add(std::string_view text, ReasoningText& out);

  State state_;
  MarkerFinder finder_;
  std::string header_;  // a header with its tags; in kBeginning, text that may be a header
  TrimmedText reasoning_;
  bool had_reasoning_ = false;
  bool had_content_ = false;
  bool parts_ = false;  // the next text is the first of its message and needs a separator before it
};

}  // namespace tessera
