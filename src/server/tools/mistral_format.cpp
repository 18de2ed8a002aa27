// The format mistral. All calls are [TOOL_CALLS] [{"name": …, "arguments": {…}}, …]. At the beginning of the text, the
// mark [TOOL_CALLS] may be missing. Newer models write [TOOL_CALLS]NAME[ARGS]{…} for each call. Some of them add
// [CALL_ID]… before [ARGS], and some leave out [ARGS].
#include "tessera/server/tools/call_formats.h"
#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/json_call_body.h"

namespace tessera {
namespace {

constexpr std::string_view kBegin = "[TOOL_CALLS]";
constexpr std::string_view kId = "[CALL_ID]";
constexpr std::string_view kArguments = "[ARGS]";

// Returns whether `text` may stand between the name and the arguments, or is a beginning of such text.
bool may_follow_name(std::string_view text) {
  if (!text.starts_with(kId)) return kId.starts_with(text) || kArguments.starts_with(text);
  const std::size_t next = text.find('[', kId.size());
  return next == std::string_view::npos || kArguments.starts_with(text.substr(next));
}

class MistralFormat final : public CallFormat {
 public:
  std::vector<std::string_view> marks() const override { return {kBegin}; }
  bool may_begin_with(char c) const override { return c == '['; }

  Mark begin(std::string_view /*mark*/, Place /*place*/) override {
    in_list_ = false;
    return Mark::kHead;
  }

  Head take_head(std::string_view seen, char c) override {
    if (seen.starts_with(kBegin)) seen.remove_prefix(kBegin.size());
    seen = without_spaces_in_front(seen);
    if (!in_list_ && !seen.empty()) return take_name(seen, c);
    if (is_call_space(c)) return {};
    if (in_list_) {
      if (c == '{') return {Head::Kind::kBody, std::make_unique<JsonCallBody>()};
      return {Head::Kind::kRefused};
    }
    in_list_ = c == '[';
    return {c == '{' ? Head::Kind::kRefused : Head::Kind::kOpen};
  }

  Tail take_tail(std::string_view seen) override {
    if (!in_list_) return Tail::kNone;
    if (seen == ",") return Tail::kNextCall;
    return seen == "]" ? Tail::kDone : Tail::kNone;
  }

 private:
  static Head take_name(std::string_view seen, char c) {
    const std::size_t size = seen.find_first_of("[ \n\r\t");
    const std::string_view name = seen.substr(0, size);
    const std::string_view between = without_spaces_around(seen.substr(name.size()));
    if (c == '{') {
      if (!between.empty() && !between.ends_with(kArguments)) return {Head::Kind::kRefused};
      return {Head::Kind::kBody, std::make_unique<JsonCallBody>(std::string(name))};
    }
    const bool in_name =
        size == std::string_view::npos && std::string_view("[]}<>\"").find(c) == std::string_view::npos;
    const bool good = in_name || is_call_space(c) || may_follow_name(std::string(between) + c);
    return {good ? Head::Kind::kOpen : Head::Kind::kRefused};
  }

  bool in_list_ = false;  // inside the list that "[" began
};

}  // namespace

std::unique_ptr<CallFormat> make_mistral_format(KnownTools /*tools*/) { return std::make_unique<MistralFormat>(); }

}  // namespace tessera
