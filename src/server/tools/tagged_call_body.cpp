#include "tessera/server/tools/tagged_call_body.h"

#include <algorithm>
#include <utility>

#include "tessera/server/tools/call_text.h"

namespace tessera {
namespace {

// TaggedCallBody holds back text that may be the beginning of a tag, and matches it again for every byte. These limits
// bound how much text it holds back, and so the work for each byte.
constexpr std::size_t kMaxSpaces = 64;
constexpr std::size_t kMaxNameBytes = 256;

bool may_be_null(std::string_view text) {
  for (const std::string_view word : {"null", "None", "NULL", "Null", "none"}) {
    if (word.starts_with(text)) return true;
  }
  return false;
}

}  // namespace

TaggedCallBody::TaggedCallBody(const CallTags& tags, std::string name, const Json* schema)
    : tags_(tags), name_(std::move(name)), schema_(schema) {}

std::string TaggedCallBody::take_arguments() { return std::exchange(arguments_, {}); }

// Matches `tag` after optional spaces. If the whole tag matches, removes the spaces and the tag from `text`.
TaggedCallBody::Match TaggedCallBody::match_spaces_and(std::string_view& text, std::string_view tag) const {
  const std::string_view rest = without_spaces_in_front(text);
  if (text.size() - rest.size() > kMaxSpaces) return Match::kNo;
  if (rest.starts_with(tag)) {
    text = rest.substr(tag.size());
    return Match::kWhole;
  }
  return tag.starts_with(rest) ? Match::kPart : Match::kNo;
}

// Matches the rest of a value's opening tag after `name_begin`: the name, then `name_end`, then the tag of one of the
// `value_begins`.
TaggedCallBody::Match TaggedCallBody::match_name(std::string_view text, Next& next) const {
  const std::size_t size = text.find_first_of("<>\"\n");
  const std::string_view name = text.substr(0, size);
  if (name.size() > kMaxNameBytes) return Match::kNo;
  if (size == std::string_view::npos) return Match::kPart;
  text.remove_prefix(size);
  if (name.empty()) return Match::kNo;
  if (!text.starts_with(tags_.name_end)) return tags_.name_end.starts_with(text) ? Match::kPart : Match::kNo;
  text.remove_prefix(tags_.name_end.size());
  Match best = Match::kNo;
  for (const CallTags::ValueBegin& begin : tags_.value_begins) {
    std::string_view rest = text;
    const Match match = begin.tag.empty() ? Match::kWhole : match_spaces_and(rest, begin.tag);
    best = std::max(best, match);
    if (match != Match::kWhole) continue;
    next = {.name = std::string(name), .values = begin.values};
    break;
  }
  return best;
}

// Matches the next value's opening tag, or the end of the call. With `outer`, outer_end also counts as the end.
TaggedCallBody::Match TaggedCallBody::match_next(std::string_view text, bool outer, Next& next) const {
  std::string_view rest = text;
  const Match named = match_spaces_and(rest, tags_.name_begin);
  if (named == Match::kWhole) return match_name(rest, next);
  rest = text;
  Match end = match_spaces_and(rest, tags_.end);
  if (end == Match::kNo && outer && !tags_.outer_end.empty()) {
    rest = text;
    end = match_spaces_and(rest, tags_.outer_end);
  }
  if (end == Match::kWhole) next = {};
  return std::max(named, end);
}

TaggedCallBody::Match TaggedCallBody::match_value_end(std::string_view text, Next& next) const {
  const bool line_begins = tags_.lines && text.starts_with('\n');
  if (line_begins) text.remove_prefix(1);
  if (text.empty()) return Match::kPart;
  if (text.starts_with(tags_.value_end)) return match_next(text.substr(tags_.value_end.size()), /*outer=*/true, next);
  if (tags_.value_end.starts_with(text)) return Match::kPart;
  if (line_begins && text.starts_with(tags_.name_begin)) {
    const Match match = match_name(text.substr(tags_.name_begin.size()), next);
    return match == Match::kWhole && !may_have_parameter(schema_, next.name) ? Match::kNo : match;
  }
  if (line_begins && tags_.name_begin.starts_with(text)) return Match::kPart;
  if (tags_.outer_end.empty()) return Match::kNo;
  if (!text.starts_with(tags_.end)) return tags_.end.starts_with(text) ? Match::kPart : Match::kNo;
  next = {};
  text.remove_prefix(tags_.end.size());
  return match_spaces_and(text, tags_.outer_end);
}

CallBody::State TaggedCallBody::push(char c) {
  if (std::exchange(at_line_end_, false) && tags_.lines && c == '\n') return State::kOpen;
  held_ += c;
  if (in_value_) return take_value() && done_ ? State::kDone : State::kOpen;
  Next next;
  switch (match_next(held_, /*outer=*/false, next)) {
    case Match::kNo: return State::kFailed;
    case Match::kPart: return State::kOpen;
    case Match::kWhole: break;
  }
  begin_next(next);
  return done_ ? State::kDone : State::kOpen;
}

// Takes as much of the value's text as possible. Returns whether the value has ended.
bool TaggedCallBody::take_value() {
  std::size_t begin = 0;
  for (; begin < held_.size(); ++begin) {
    Next next;
    const Match match = match_value_end(std::string_view(held_).substr(begin), next);
    if (match == Match::kNo) continue;
    add_value(std::string_view(held_).substr(0, begin));
    held_.erase(0, begin);
    if (match == Match::kPart) return false;
    end_value();
    begin_next(next);
    return true;
  }
  add_value(held_);
  held_.clear();
  return false;
}

void TaggedCallBody::begin_next(const Next& next) {
  held_.clear();
  const bool first = !std::exchange(begun_, true);
  if (next.name.empty()) {
    arguments_ += first ? "{}" : "}";
    done_ = true;
    return;
  }
  in_value_ = true;
  at_line_end_ = true;
  value_.clear();
  switch (next.values) {
    case CallTags::Values::kBySchema: types_ = parameter_types(schema_, next.name); break;
    case CallTags::Values::kStrings: types_ = ParameterTypes(ParameterTypes::kString); break;
    case CallTags::Values::kJson: types_ = ParameterTypes(0x7f & ~ParameterTypes::kString); break;
  }
  mode_ = types_.is_string() ? Mode::kString : types_.is_string_or_null() ? Mode::kMaybeNull : Mode::kWhole;
  arguments_ += first ? "{\"" : ", \"";
  append_escaped(arguments_, next.name);
  arguments_ += mode_ == Mode::kString ? "\": \"" : "\": ";
}

void TaggedCallBody::add_value(std::string_view text) {
  if (mode_ == Mode::kString) return append_escaped(arguments_, text);
  value_ += text;
  if (mode_ == Mode::kWhole || may_be_null(value_)) return;
  mode_ = Mode::kString;
  arguments_ += '"';
  append_escaped(arguments_, std::exchange(value_, {}));
}

void TaggedCallBody::end_value() {
  in_value_ = false;
  arguments_ += mode_ == Mode::kString ? "\"" : value_as_json(value_, types_);
}

void TaggedCallBody::finish() {
  if (!in_value_ || done_) return;
  std::string_view rest = held_;
  if (tags_.lines && rest.starts_with('\n')) rest.remove_prefix(1);
  const bool ends_call = !tags_.outer_end.empty() && rest.starts_with(tags_.end);
  if (ends_call || rest.starts_with(tags_.value_end)) {
    end_value();
    if (ends_call) begin_next({});
    return;
  }
  add_value(held_);
  if (mode_ == Mode::kMaybeNull) append_escaped(arguments_ += '"', value_);
  if (mode_ == Mode::kWhole) arguments_ += value_;
}

}  // namespace tessera
