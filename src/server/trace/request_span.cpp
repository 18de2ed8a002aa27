#include "tessera/server/trace/request_span.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/server/http/random_id.h"

namespace tessera {
namespace {

// Returns whether the text has only lower-case hexadecimal digits, not all of them 0.
bool is_id(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return std::ranges::all_of(text, is_digit) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::optional<TraceParent> read_trace_parent(std::string_view header) {
  // The form is "00-TRACE-SPAN-FLAGS"; later versions may append more.
  if (header.size() < kTraceParentSize || header.starts_with("ff")) return std::nullopt;
  const std::string_view trace = header.substr(3, kTraceDigits);
  const std::string_view span = header.substr(3 + kTraceDigits + 1, kSpanDigits);
  const std::string_view flags = header.substr(kTraceParentSize - 2, 2);
  const bool separated = header[2] == '-' && header[3 + kTraceDigits] == '-' && header[kTraceParentSize - 3] == '-';
  const bool ends = header.size() == kTraceParentSize || (header[kTraceParentSize] == '-' && !header.starts_with("00"));
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!separated || !ends || !is_id(trace) || !is_id(span) || !std::ranges::all_of(flags, is_hex) ||
      !std::ranges::all_of(header.substr(0, 2), is_hex))
    return std::nullopt;
  const int last = flags[1] <= '9' ? flags[1] - '0' : flags[1] - 'a' + 10;
  return TraceParent{.trace_id = std::string(trace), .span_id = std::string(span), .sampled = (last & 1) != 0};
}

std::string answer_trace_parent(std::string_view header) {
  const std::optional<TraceParent> parent = read_trace_parent(header);
  if (!parent) return "";
  return fmt::format("00-{}-{}-{}", parent->trace_id, make_id("").substr(0, kSpanDigits),
                     parent->sampled ? "01" : "00");
}

std::optional<TraceSpan> make_request_span(const FinishedRequest& finished, std::int64_t end_ns) {
  const GenerationFacts& facts = finished.generation;
  std::optional<TraceParent> parent = read_trace_parent(facts.trace_parent);
  if (parent ? !parent->sampled : facts.id.empty()) return std::nullopt;
  const std::optional<TraceParent> announced = read_trace_parent(facts.trace_answer);
  TraceSpan span{.span_id = announced ? announced->span_id : make_id("").substr(0, kSpanDigits),
                 .end_ns = end_ns,
                 .work = finished};
  span.start_ns = end_ns - static_cast<std::int64_t>(finished.seconds * 1e9);
  if (parent) {
    span.trace_id = std::move(parent->trace_id);
    span.parent_id = std::move(parent->span_id);
  } else {
    span.trace_id = make_id("");
  }
  return span;
}

}  // namespace tessera
