// Writes expressions for lists whose elements are separated by commas. Elements may be optional, and their number may
// have bounds.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "tessera/engine/schema/grammar_limits.h"
#include "tessera/engine/schema/grammar_writer.h"

namespace tessera::schema {

Result<std::string> GrammarWriter::separated(const Elements& elements) {
  const auto listed = static_cast<std::int64_t>(elements.listed.size());
  const std::int64_t required = std::ranges::count_if(elements.listed, &Element::required);
  if (elements.listed.empty()) {
    if (elements.more.empty() || elements.max == 0) return std::string();
    const std::string first = elements.more + ' ' +
                              ebnf_repeat(token(",") + ' ' + elements.more, std::max<std::int64_t>(elements.min - 1, 0),
                                          elements.max < 0 ? -1 : elements.max - 1);
    return elements.min > 0 ? first : ebnf_repeat(first, 0, 1);
  }
  const bool most_is_free = elements.max < 0 || (elements.more.empty() && elements.max >= listed);
  if (elements.min <= required && most_is_free) return uncounted(elements);
  return counted(elements);
}

std::string GrammarWriter::uncounted(const Elements& elements) {
  const std::string comma = token(",") + ' ';
  // Computes what may follow each element, from the last element to the first.
  std::string tail = elements.more.empty() ? "" : ebnf_repeat(comma + elements.more, 0, -1);
  // Expressions for the lists that begin with each element, the last element first.
  std::vector<std::string> starts;
  if (!elements.more.empty()) starts.push_back(tail.empty() ? elements.more : elements.more + ' ' + tail);
  bool may_be_empty = true;
  for (std::size_t i = elements.listed.size(); i-- > 0;) {
    const Element& element = elements.listed[i];
    if (element.required) {
      starts.clear();
      may_be_empty = false;
    }
    starts.push_back(tail.empty() ? element.text : element.text + ' ' + tail);
    if (i == 0) break;
    std::string one = comma + element.text;
    if (!element.required) one = ebnf_repeat(one, 0, 1);
    if (tail.empty()) {
      tail = std::move(one);
    } else {
      one.append(" ").append(tail);
      tail = rules_.shared(one);
    }
  }
  std::ranges::reverse(starts);
  if (may_be_empty) starts.emplace_back("\"\"");
  return ebnf_choice(starts);
}

Result<std::string> GrammarWriter::counted(const Elements& elements) {
  const std::string comma = token(",") + ' ';
  const auto listed = static_cast<std::int64_t>(elements.listed.size());
  // Without a maximum, it does not matter by how much a count exceeds the minimum, so counts are capped at the minimum.
  const std::int64_t top = elements.max >= 0 ? elements.max : elements.min;
  const auto capped = [&](std::int64_t count) { return elements.max < 0 ? std::min(count, top) : count; };
  // known[{element, count}] is an expression for the rest of the list from that element on if `count` elements precede
  // it, or nothing if every such list has too few or too many elements.
  std::map<std::pair<std::int64_t, std::int64_t>, std::optional<std::string>> known;
  const auto more_from = [&](std::int64_t count) -> std::optional<std::string> {
    const std::int64_t least = std::max<std::int64_t>(elements.min - count, 0);
    const std::int64_t most = elements.max < 0 ? -1 : elements.max - count;
    if (least == 0 && (elements.more.empty() || most == 0)) return "\"\"";
    if (elements.more.empty() || (most >= 0 && most < least) || (elements.alike && least > 1)) return std::nullopt;
    if (count > 0) return ebnf_repeat(comma + elements.more, least, most);
    const std::string first =
        elements.more + ' ' +
        ebnf_repeat(comma + elements.more, std::max<std::int64_t>(least - 1, 0), most < 0 ? -1 : most - 1);
    return least > 0 ? first : ebnf_repeat(first, 0, 1);
  };
  if (listed * std::min(listed, std::max<std::int64_t>(top, 1)) > static_cast<std::int64_t>(kMaxGrammarRules)) {
    return invalid_argument(fmt::format("its counts of properties come to more than {} rules", kMaxGrammarRules));
  }
  for (std::int64_t at = listed; at >= 0; --at) {
    for (std::int64_t count = std::min(at, elements.max < 0 ? std::max(top, std::int64_t{1}) : top); count >= 0;
         --count) {
      if (at == listed) {
        known[{at, count}] = more_from(count);
        continue;
      }
      const Element& element = elements.listed[static_cast<std::size_t>(at)];
      std::vector<std::string> ways;
      // Once an element precedes, the count must be above 0, because the next element needs a comma. With a minimum of
      // 0 and no maximum, capped() would return 0, so the count is raised to 1.
      std::int64_t next = count + 1;
      if (elements.max < 0) next = std::min(next, std::max(capped(next), std::int64_t{1}));
      const auto with = known.find({at + 1, next});
      if (with != known.end() && with->second) {
        ways.push_back((count > 0 ? comma : "") + element.text + (*with->second == "\"\"" ? "" : ' ' + *with->second));
      }
      const auto left = known.find({at + 1, count});
      if (!element.required && left != known.end() && left->second) ways.push_back(*left->second);
      if (ways.empty()) {
        known[{at, count}] = std::nullopt;
      } else {
        known[{at, count}] = rules_.shared(ebnf_choice(ways));
      }
    }
  }
  return known[{0, 0}].value_or("\"\"");
}

std::string GrammarWriter::any_order(const std::vector<std::string>& values, std::int64_t min, std::int64_t max) {
  const auto size = static_cast<unsigned>(values.size());
  const std::string comma = token(",") + ' ';
  // rest[left] is an expression for the rest of the list if the values in `left`, a set of bits, are not used yet.
  // Small sets come first, because the expression of a larger set contains expressions of smaller sets.
  std::map<unsigned, std::string> rest;
  for (unsigned left = 0; left < (1u << size); ++left) {
    const auto count = static_cast<std::int64_t>(size) - std::popcount(left);
    std::vector<std::string> ways;
    if (count >= min) ways.emplace_back("\"\"");
    for (unsigned i = 0; i < size && (max < 0 || count < max); ++i) {
      if ((left >> i & 1) == 0) continue;
      const auto next = rest.find(left & ~(1u << i));
      if (next == rest.end()) continue;
      ways.push_back((count > 0 ? comma : "") + values[i] + (next->second == "\"\"" ? "" : ' ' + next->second));
    }
    if (ways.empty()) continue;
    rest[left] = ways.size() == 1 ? ways.front() : rules_.shared(ebnf_choice(ways));
  }
  return rest[(1u << size) - 1];
}

}  // namespace tessera::schema
