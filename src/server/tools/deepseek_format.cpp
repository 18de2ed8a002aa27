// The calls of DeepSeek V3 and V3.1. <｜tool▁calls▁begin｜> and <｜tool▁calls▁end｜> enclose all calls:
//
//   deepseekv3:  <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME
//                the arguments in a Markdown fence
//                <｜tool▁call▁end｜>
//   deepseekv31: <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>
#include "tessera/server/tools/call_formats.h"
#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/json_call_body.h"

namespace tessera {
namespace {

constexpr std::string_view kListBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kListEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kFence = "```";

std::string_view word_in_front(std::string_view text) {
  text = without_spaces_in_front(text);
  return text.substr(0, text.find_first_of(kCallSpaces));
}

// Returns the function's name. V3 writes the name after the separator, V3.1 before it.
std::string name_in(std::string_view head) {
  const std::size_t separator = head.find(kSeparator);
  if (separator == std::string_view::npos) return "";
  const std::string_view behind = word_in_front(head.substr(separator + kSeparator.size()));
  return std::string(behind.empty() || behind.starts_with(kFence) ? word_in_front(head.substr(0, separator)) : behind);
}

class DeepseekFormat final : public CallFormat {
 public:
  std::vector<std::string_view> marks() const override { return {kListBegin, kBegin, kListEnd}; }

  Mark begin(std::string_view mark, Place place) override {
    if (mark != kListEnd) return Mark::kHead;
    return place.after_calls ? Mark::kSilent : Mark::kContent;
  }

  // Takes the head, which is everything before the opening brace of the arguments.
  Head take_head(std::string_view seen, char c) override {
    if (seen.starts_with(kListBegin)) seen.remove_prefix(kListBegin.size());
    seen = without_spaces_in_front(seen);
    const bool begun = seen.starts_with(kBegin);
    if (begun && c == '{') {
      std::string name = name_in(seen.substr(kBegin.size()));
      if (name.empty()) return {Head::Kind::kRefused};
      return {Head::Kind::kBody, std::make_unique<JsonCallBody>(std::move(name))};
    }
    const bool good = begun || (seen.empty() && is_call_space(c)) || kBegin.starts_with(std::string(seen) + c);
    return {good ? Head::Kind::kOpen : Head::Kind::kRefused};
  }

  Tail take_tail(std::string_view seen) override {
    if (seen.starts_with(kFence)) seen = without_spaces_in_front(seen.substr(kFence.size()));
    if (seen == kEnd) return Tail::kDone;
    return seen.empty() || kFence.starts_with(seen) || kEnd.starts_with(seen) ? Tail::kOpen : Tail::kNone;
  }
};

}  // namespace

std::unique_ptr<CallFormat> make_deepseek_format(KnownTools /*tools*/) { return std::make_unique<DeepseekFormat>(); }

}  // namespace tessera
