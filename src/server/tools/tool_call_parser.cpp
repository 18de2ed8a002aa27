#include "tessera/server/tools/tool_call_parser.h"

#include <algorithm>
#include <utility>

#include "tessera/server/tools/call_formats.h"
#include "tessera/server/tools/call_text.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxHeadBytes = 1024;

}  // namespace

Result<ToolCallParser> ToolCallParser::create(std::string_view name, const Json& tools, NewId new_id) {
  const KnownTools known(tools);
  std::unique_ptr<CallFormat> format = TRY(make_call_format(name, known));
  return ToolCallParser(std::move(format), known, std::move(new_id));
}

ToolCallParser::ToolCallParser(std::unique_ptr<CallFormat> format, KnownTools tools, NewId new_id)
    : format_(std::move(format)),
      tools_(tools),
      new_id_(std::move(new_id)),
      marks_(format_->marks()),
      finder_(marks_) {}

ToolText ToolCallParser::push(std::string_view text) {
  for (const char c : text) take(c);
  return std::exchange(out_, {});
}

ToolText ToolCallParser::finish() {
  // A loop is needed, because the text of an unfinished head may contain the beginning of another head.
  while (phase_ == Phase::kHead) end_head();
  if (phase_ == Phase::kContent) add_content(finder_.take_held());
  if (phase_ == Phase::kBody && !counts_) refuse_body({});
  if (phase_ == Phase::kBody) {
    body_->finish();
    hand_on();
  }
  if (calls_ == 0) out_.content += std::exchange(spaces_, {});
  return std::exchange(out_, {});
}

void ToolCallParser::take(char c) {
  switch (phase_) {
    case Phase::kContent: take_content(c); break;
    case Phase::kHead: take_head(c); break;
    case Phase::kBody: take_body(c); break;
    case Phase::kTail: take_tail(c); break;
  }
}

void ToolCallParser::take_content(char c) {
  std::string passed;
  const auto mark = finder_.push(c, passed);
  if (place().at_beginning) {
    const std::size_t first = passed.find_first_not_of(kCallSpaces);
    if (first != std::string::npos && format_->may_begin_with(passed[first])) {
      // Collects all bytes from the call's beginning on, including bytes that the finder took for a mark or for the
      // beginning of a mark.
      const std::string begun = passed.substr(first) + (mark ? std::string(marks_[*mark]) : finder_.take_held());
      add_content(std::string_view(passed).substr(0, first));
      begin_call({});
      for (const char held : begun) take(held);
      return;
    }
  }
  add_content(passed);
  if (mark) begin_call(marks_[*mark]);
}

void ToolCallParser::begin_call(std::string_view mark) {
  switch (format_->begin(mark, place())) {
    case CallFormat::Mark::kContent: return add_content(mark);
    case CallFormat::Mark::kSilent: return;
    case CallFormat::Mark::kHead: break;
  }
  raw_ = mark;
  mark_size_ = std::max<std::size_t>(mark.size(), 1);
  phase_ = Phase::kHead;
}

void ToolCallParser::take_head(char c) {
  using Kind = CallFormat::Head::Kind;
  CallFormat::Head head = format_->take_head(raw_, c);
  if (raw_.size() >= kMaxHeadBytes) head.kind = Kind::kRefused;
  switch (head.kind) {
    case Kind::kOpen: raw_ += c; break;
    case Kind::kRefused: refuse_head(c); break;
    case Kind::kBody:
      begin_body(std::move(head.body));
      take_body(c);
      break;
    case Kind::kWholeCall:
      raw_ += c;
      if (!begin_body(std::move(head.body))) return refuse_body({});
      hand_on();
      phase_ = Phase::kContent;
      break;
  }
}

// Begins the body of a call. Returns false if the call's name is already known but no function has this name.
bool ToolCallParser::begin_body(std::unique_ptr<CallBody> body) {
  body_ = std::move(body);
  counts_ = false;
  is_known_ = false;
  phase_ = Phase::kBody;
  return body_->name().empty() || tools_.knows(body_->name());
}

void ToolCallParser::take_body(char c) {
  const CallBody::State state = body_->push(c);
  if (!is_known_ && !body_->name().empty()) {
    if (!tools_.knows(body_->name())) return refuse_body(c);
    is_known_ = true;
  }
  if (state == CallBody::State::kFailed) return refuse_body(c);
  if (!counts_) raw_ += c;
  if (body_->is_call()) hand_on();
  if (state != CallBody::State::kDone) return;
  phase_ = Phase::kTail;
  tail_.clear();
}

void ToolCallParser::hand_on() {
  if (!counts_) {
    counts_ = true;
    raw_.clear();
    spaces_.clear();
    out_.calls.push_back({.index = calls_++, .id = new_id_(), .name = body_->name()});
  }
  std::string arguments = body_->take_arguments();
  if (arguments.empty()) return;
  if (out_.calls.empty() || out_.calls.back().index != calls_ - 1) out_.calls.push_back({.index = calls_ - 1});
  out_.calls.back().arguments += arguments;
}

void ToolCallParser::take_tail(char c) {
  tail_ += c;
  const std::string_view seen = without_spaces_in_front(tail_);
  if (seen.empty()) return;
  switch (format_->take_tail(seen)) {
    case CallFormat::Tail::kOpen: break;
    case CallFormat::Tail::kDone: phase_ = Phase::kContent; break;
    case CallFormat::Tail::kNextCall:
      raw_ = std::exchange(tail_, {});
      mark_size_ = raw_.size();
      phase_ = Phase::kHead;
      break;
    case CallFormat::Tail::kNone:
      phase_ = Phase::kContent;
      for (const char held : std::exchange(tail_, {})) take(held);
      break;
  }
}

void ToolCallParser::add_content(std::string_view text) {
  for (const char c : text) {
    if (is_call_space(c)) {
      spaces_ += c;
      continue;
    }
    has_content_ = true;
    out_.content += std::exchange(spaces_, {});
    out_.content += c;
  }
}

// Ends a head that turned out not to begin a call. The mark becomes content, and the text after the mark is read again.
// `next` is the byte at which the head was refused; nothing at the end of the text.
void ToolCallParser::refuse_head(std::optional<char> next) {
  phase_ = Phase::kContent;
  std::string again = std::exchange(raw_, {});
  if (next) again += *next;
  add_content(std::string_view(again).substr(0, mark_size_));
  // Prevents a call without a mark from beginning again at the same byte.
  has_content_ = true;
  const std::size_t size = mark_size_;
  for (const char held : again.substr(std::min(size, again.size()))) take(held);
}

// Ends a body that is not a valid call. The held text becomes content. It is not read again, because it may be long.
void ToolCallParser::refuse_body(std::optional<char> next) {
  phase_ = Phase::kContent;
  add_content(std::exchange(raw_, {}));
  if (!next) return;
  // Prevents `next` from beginning a call without a mark. If the body failed at its first byte, an opening brace, that
  // brace would otherwise begin the same call again.
  has_content_ = true;
  take(*next);
}

// Ends an unfinished head at the end of the text.
void ToolCallParser::end_head() {
  std::unique_ptr<CallBody> body = format_->end_in_head(raw_);
  if (body == nullptr || !tools_.knows(body->name())) return refuse_head({});
  begin_body(std::move(body));
  hand_on();
  phase_ = Phase::kContent;
}

}  // namespace tessera
