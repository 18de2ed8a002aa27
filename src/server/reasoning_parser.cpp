#include "tessera/server/reasoning_parser.h"

#include <utility>

namespace tessera {
namespace {

constexpr std::string_view kOpening = "<think>";
constexpr std::string_view kClosing = "</think>";
constexpr std::size_t kOpeningTag = 0;  // among the finder's

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

ReasoningParser::ReasoningParser(State state) : state_(state), tags_({kOpening, kClosing}) {}

Result<ReasoningParser> ReasoningParser::create(std::string_view name, bool opened) {
  if (name == "deepseek-r1") return ReasoningParser(State::kInside);
  if (name == "qwen3") return ReasoningParser(opened ? State::kInside : State::kBeginning);
  if (name == "none") return ReasoningParser(State::kContent);
  std::string message = "reasoning parser \"" + std::string(name) + "\"; accepted: ";
  for (const std::string_view known : reasoning_parser_names()) {
    if (!message.ends_with(' ')) message += ", ";
    message += known;
  }
  return invalid_argument(std::move(message));
}

ReasoningText ReasoningParser::push(std::string_view text) {
  ReasoningText out;
  for (const char c : text) {
    switch (state_) {
      case State::kBeginning: push_beginning(c, out); break;
      case State::kInside: push_inside(c, out); break;
      case State::kBehind:
        if (is_space(c)) break;
        state_ = State::kContent;
        [[fallthrough]];
      case State::kContent: out.content += c; break;
    }
  }
  return out;
}

// White space, then the opening tag or not.
void ReasoningParser::push_beginning(char c, ReasoningText& out) {
  std::string passed;
  const auto tag = tags_.push(c, passed);
  for (const char p : passed) {
    if (!is_space(p)) return begin_content(passed + tags_.take_held(), out);
  }
  spaces_ += passed;
  if (!tag) return;
  if (*tag != kOpeningTag) return begin_content(kClosing, out);
  spaces_.clear();
  state_ = State::kInside;
}

void ReasoningParser::begin_content(std::string_view more, ReasoningText& out) {
  out.content += std::exchange(spaces_, {});
  out.content += more;
  state_ = State::kContent;
}

void ReasoningParser::push_inside(char c, ReasoningText& out) {
  std::string passed;
  const auto tag = tags_.push(c, passed);
  add_reasoning(passed, out);
  if (!tag) return;
  if (*tag == kOpeningTag) {
    // The prompt had it already; further on it is text.
    if (!nothing_yet_) add_reasoning(kOpening, out);
    return;
  }
  spaces_.clear();
  state_ = State::kBehind;
}

// Holds white space back until something follows.
void ReasoningParser::add_reasoning(std::string_view text, ReasoningText& out) {
  for (const char c : text) {
    if (is_space(c)) {
      if (!nothing_yet_) spaces_ += c;
      continue;
    }
    nothing_yet_ = false;
    out.reasoning += std::exchange(spaces_, {});
    out.reasoning += c;
  }
}

ReasoningText ReasoningParser::finish() {
  ReasoningText out;
  if (state_ == State::kBeginning) begin_content(tags_.take_held(), out);
  if (state_ == State::kInside) add_reasoning(tags_.take_held(), out);
  return out;
}

std::vector<std::string_view> reasoning_parser_names() { return {"deepseek-r1", "qwen3", "none"}; }

std::string_view guess_reasoning_parser(std::string_view chat_template) {
  return chat_template.find(kClosing) != std::string_view::npos ? "qwen3" : "";
}

}  // namespace tessera
