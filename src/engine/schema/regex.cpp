#include "tessera/engine/schema/regex.h"

#include <algorithm>
#include <utility>

#include "tessera/text/unicode.h"

namespace tessera::schema {

using Kind = RegexNode::Kind;

Regex make_class(CharSet both) {
  CharSet wide = both;
  return make_class(std::move(both), std::move(wide));
}

Regex make_class(CharSet narrow, CharSet wide) {
  return std::make_shared<RegexNode>(
      RegexNode{.kind = Kind::kClass, .narrow = std::move(narrow), .wide = std::move(wide)});
}

Regex make_text(std::string_view utf8) {
  std::vector<Regex> parts;
  for (std::size_t at = 0; at < utf8.size();) {
    const Utf8Step step = decode_utf8(utf8, at);
    parts.push_back(make_class(CharSet::of(step.code)));
    at += step.length;
  }
  return make_sequence(std::move(parts));
}

Regex make_sequence(std::vector<Regex> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_shared<RegexNode>(RegexNode{.kind = Kind::kSequence, .parts = std::move(parts)});
}

Regex make_choice(std::vector<Regex> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_shared<RegexNode>(RegexNode{.kind = Kind::kChoice, .parts = std::move(parts)});
}

Regex make_repeat(Regex part, int min, int max) {
  return std::make_shared<RegexNode>(
      RegexNode{.kind = Kind::kRepeat, .parts = {std::move(part)}, .min = min, .max = max});
}

Regex make_whole(Regex regex) {
  return make_sequence({std::make_shared<RegexNode>(RegexNode{.kind = Kind::kStart}), std::move(regex),
                        std::make_shared<RegexNode>(RegexNode{.kind = Kind::kEnd})});
}

Regex make_any() { return make_class(CharSet::all()); }

LengthRange regex_lengths(const Regex& regex) {
  LengthRange out;
  switch (regex->kind) {
    case Kind::kStart:
    case Kind::kEnd: return out;
    case Kind::kClass: return {1, 1};
    case Kind::kSequence:
      for (const Regex& part : regex->parts) {
        const LengthRange one = regex_lengths(part);
        out.min += one.min;
        out.max = out.max < 0 || one.max < 0 ? -1 : out.max + one.max;
      }
      break;
    case Kind::kChoice:
      for (std::size_t i = 0; i < regex->parts.size(); ++i) {
        const LengthRange one = regex_lengths(regex->parts[i]);
        out.min = i == 0 ? one.min : std::min(out.min, one.min);
        out.max = out.max < 0 || one.max < 0 ? -1 : std::max(out.max, one.max);
      }
      break;
    case Kind::kRepeat: {
      const LengthRange one = regex_lengths(regex->parts.front());
      out.min = one.min * regex->min;
      if (one.max == 0 || regex->max == 0) return {0, 0};
      out.max = one.max < 0 || regex->max < 0 ? -1 : one.max * regex->max;
      break;
    }
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // keeps products of nested counts from overflowing
  if (out.max > kMost) out.max = -1;
  out.min = std::min(out.min, kMost);
  return out;
}

std::size_t regex_ranges(const Regex& regex) {
  std::size_t count = regex->narrow.ranges().size() + regex->wide.ranges().size();
  for (const Regex& part : regex->parts) count += regex_ranges(part);
  return count;
}

bool has_anchor(const Regex& regex) {
  if (regex->kind == Kind::kStart || regex->kind == Kind::kEnd) return true;
  return std::ranges::any_of(regex->parts, has_anchor);
}

Regex without_anchors(const Regex& regex) {
  if (regex->kind == Kind::kChoice) {
    std::vector<Regex> parts;
    for (const Regex& part : regex->parts) {
      parts.push_back(without_anchors(part));
      if (parts.back() == nullptr) return nullptr;
    }
    return make_choice(std::move(parts));
  }
  std::vector<Regex> parts = regex->kind == Kind::kSequence ? regex->parts : std::vector<Regex>{regex};
  const bool start = !parts.empty() && parts.front()->kind == Kind::kStart;
  const bool end = !parts.empty() && parts.back()->kind == Kind::kEnd;
  if (start) parts.erase(parts.begin());
  if (end) parts.pop_back();
  if (std::ranges::any_of(parts, has_anchor)) return nullptr;
  const Regex any = make_repeat(make_any(), 0, -1);
  if (!start) parts.insert(parts.begin(), any);
  if (!end) parts.push_back(any);
  return make_sequence(std::move(parts));
}

}  // namespace tessera::schema
