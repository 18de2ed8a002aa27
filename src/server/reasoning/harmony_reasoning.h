// The messages of gpt-oss (harmony.h) taken apart: those of the channel "analysis" are reasoning, the others are
// content, without headers and ends. A call is content too, with its header and its end, by which ToolCallParser
// "gpt-oss" finds it. Messages of one kind that follow one another are parted by a line's end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/server/tools/marker_finder.h"
#include "tessera/server/tools/reasoning_format.h"

namespace tessera {

class HarmonyReasoning final : public ReasoningFormat {
 public:
  // `inside`: the prompt ends with the header of an analysis. Else the text begins with a header, or where it does not
  // in the middle of an answer.
  explicit HarmonyReasoning(bool inside);

  ReasoningText push(std::string_view text) override;
  ReasoningText finish() override;
  bool in_reasoning() const override { return state_ == State::kReasoning; }

 private:
  enum class State : std::uint8_t {
    kBeginning,
    kBetween,  // messages
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
  std::string header_;  // with its tags; kBeginning: what may be one
  TrimmedText reasoning_;
  bool had_reasoning_ = false;
  bool had_content_ = false;
  bool parts_ = false;  // the next text of the message is the first, and is parted from the message before
};

}  // namespace tessera
