#include "tessera/server/reasoning/harmony_reasoning.h"

#include <utility>
#include <vector>

#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/harmony.h"

namespace tessera {
namespace {

const std::vector<std::string_view>& tags() {
  static const std::vector<std::string_view> kTags{kHarmonyStart, kHarmonyChannel, kHarmonyConstrain, kHarmonyMessage,
                                                   kHarmonyEnd,   kHarmonyCall,    kHarmonyReturn};
  return kTags;
}

bool ends_message(std::string_view tag) { return tag == kHarmonyEnd || tag == kHarmonyCall || tag == kHarmonyReturn; }
bool begins_header(std::string_view tag) { return tag == kHarmonyStart || tag == kHarmonyChannel; }

}  // namespace

HarmonyReasoning::HarmonyReasoning(bool inside)
    : state_(inside ? State::kReasoning : State::kBeginning), finder_(tags()) {}

ReasoningText HarmonyReasoning::push(std::string_view text) {
  ReasoningText out;
  for (const char c : text) {
    std::string passed;
    const auto tag = finder_.push(c, passed);
    // The finder may release several bytes at once. take_text() gets each byte by itself.
    for (const char p : passed) take_text({&p, 1}, out);
    if (tag) take_tag(tags()[*tag], out);
  }
  return out;
}

void HarmonyReasoning::take_text(std::string_view text, ReasoningText& out) {
  switch (state_) {
    case State::kBeginning: return take_beginning(text, out);
    case State::kHeader:
      header_ += text;
      if (header_.size() > kMaxHarmonyHeaderBytes) flush_header(out);
      return;
    case State::kBetween:
      if (is_call_space(text[0])) return;
      state_ = State::kContent;
      parts_ = had_content_;
      [[fallthrough]];
    default: add(text, out);
  }
}

// Takes text at the beginning of the turn. If the text begins with "to=", it is part of a header and names the
// recipient of a call. Otherwise it is content.
void HarmonyReasoning::take_beginning(std::string_view text, ReasoningText& out) {
  header_ += text;
  const std::string_view begun = without_spaces_in_front(header_);
  if (begun == kHarmonyRecipient) {
    state_ = State::kHeader;
  } else if (!kHarmonyRecipient.starts_with(begun)) {
    flush_header(out);
  }
}

void HarmonyReasoning::take_tag(std::string_view tag, ReasoningText& out) {
  if (state_ == State::kBeginning && !without_spaces_in_front(header_).empty()) flush_header(out);
  const bool in_body = state_ == State::kReasoning || state_ == State::kContent || state_ == State::kCall;
  if (in_body && !ends_message(tag) && !begins_header(tag)) return add(tag, out);
  if (state_ == State::kHeader && (tag == kHarmonyChannel || tag == kHarmonyConstrain)) {
    header_ += tag;
  } else if (tag == kHarmonyMessage) {
    begin_body(out);
  } else if (begins_header(tag)) {
    // The previous message may lack its end tag or its body.
    if (state_ == State::kHeader) flush_header(out);
    header_ = tag;
    state_ = State::kHeader;
  } else if (ends_message(tag)) {
    if (state_ == State::kCall) add(tag, out);
    if (state_ == State::kHeader) flush_header(out);
    state_ = State::kBetween;
  } else {
    flush_header(out);
    add(tag, out);
  }
}

// Begins the body that follows <|message|>.
void HarmonyReasoning::begin_body(ReasoningText& out) {
  const std::optional<HarmonyHeader> header = read_harmony_header(header_);
  if (!header) {
    flush_header(out);
    return add(kHarmonyMessage, out);
  }
  const bool is_analysis = header->channel == "analysis";
  const bool is_call = !header->recipient.empty() && (!is_analysis || header->recipient.starts_with("functions."));
  if (is_call) {
    state_ = State::kCall;
    add(std::exchange(header_, {}), out);
    return add(kHarmonyMessage, out);
  }
  header_.clear();
  reasoning_.end();
  state_ = is_analysis ? State::kReasoning : State::kContent;
  parts_ = is_analysis ? had_reasoning_ : had_content_;
}

// Turns the held text into content. Call it when the held text turns out not to be a header.
void HarmonyReasoning::flush_header(ReasoningText& out) {
  state_ = State::kContent;
  add(std::exchange(header_, {}), out);
}

void HarmonyReasoning::add(std::string_view text, ReasoningText& out) {
  if (state_ != State::kReasoning) {
    if (!text.empty() && std::exchange(parts_, false)) out.content += '\n';
    had_content_ = had_content_ || (state_ == State::kContent && !text.empty());
    out.content += text;
    return;
  }
  std::string more;
  reasoning_.add(text, more);
  if (more.empty()) return;
  if (std::exchange(parts_, false)) out.reasoning += '\n';
  had_reasoning_ = true;
  out.reasoning += more;
}

ReasoningText HarmonyReasoning::finish() {
  ReasoningText out;
  const std::string held = finder_.take_held();
  if (state_ == State::kBeginning || state_ == State::kHeader) flush_header(out);
  add(held, out);
  return out;
}

}  // namespace tessera
