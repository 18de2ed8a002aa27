#include "tessera/server/reasoning/tagged_reasoning.h"

#include <utility>

#include "tessera/server/tools/call_text.h"

namespace tessera {
namespace {

constexpr std::size_t kOpeningTag = 0;  // the tag's index in the finder

}  // namespace

void TrimmedText::add(std::string_view text, std::string& out) {
  for (const char c : text) {
    if (is_call_space(c)) {
      if (!empty_) spaces_ += c;
      continue;
    }
    empty_ = false;
    out += std::exchange(spaces_, {});
    out += c;
  }
}

void TrimmedText::end() {
  spaces_.clear();
  empty_ = true;
}

TaggedReasoning::TaggedReasoning(const ReasoningTags& tags, bool inside)
    : tags_(tags), state_(inside ? State::kInside : State::kBeginning), finder_({tags.opening, tags.closing}) {}

ReasoningText TaggedReasoning::push(std::string_view text) {
  ReasoningText out;
  for (const char c : text) {
    switch (state_) {
      case State::kBeginning: push_beginning(c, out); break;
      case State::kInside: push_inside(c, out); break;
      case State::kBehind:
        if (is_call_space(c)) break;
        state_ = State::kContent;
        [[fallthrough]];
      case State::kContent: out.content += c; break;
    }
  }
  return out;
}

// Takes a byte at the beginning of the text, where white space and then an opening tag may come.
void TaggedReasoning::push_beginning(char c, ReasoningText& out) {
  std::string passed;
  const auto tag = finder_.push(c, passed);
  for (const char p : passed) {
    if (!is_call_space(p)) return begin_content(passed + finder_.take_held(), out);
  }
  spaces_ += passed;
  if (!tag) return;
  if (*tag != kOpeningTag) return begin_content(tags_.closing, out);
  spaces_.clear();
  state_ = State::kInside;
}

void TaggedReasoning::begin_content(std::string_view more, ReasoningText& out) {
  out.content += std::exchange(spaces_, {});
  out.content += more;
  state_ = State::kContent;
}

void TaggedReasoning::push_inside(char c, ReasoningText& out) {
  std::string passed;
  const auto tag = finder_.push(c, passed);
  reasoning_.add(passed, out.reasoning);
  if (!tag) return;
  if (*tag == kOpeningTag) {
    // An opening tag at the beginning repeats the prompt's tag. A later opening tag is text.
    if (!reasoning_.empty()) reasoning_.add(tags_.opening, out.reasoning);
    return;
  }
  state_ = State::kBehind;
}

ReasoningText TaggedReasoning::finish() {
  ReasoningText out;
  if (state_ == State::kBeginning) begin_content(finder_.take_held(), out);
  if (state_ == State::kInside) reasoning_.add(finder_.take_held(), out.reasoning);
  return out;
}

}  // namespace tessera
