// The format gpt-oss. A call is a message (harmony.h) to functions.NAME. The message's body is the arguments.
#include <utility>

#include "tessera/server/tools/call_formats.h"
#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/harmony.h"
#include "tessera/server/tools/json_call_body.h"

namespace tessera {
namespace {

constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kRole = "<|start|>assistant";

// Returns the function's name; "" if `text` is not a header, or is the header of a message to the user.
std::string function_in(std::string_view text) {
  std::string_view name = read_harmony_header(text).value_or(HarmonyHeader()).recipient;
  if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
  return std::string(name);
}

// Returns `text` without the tag <|message|> at its end.
std::string_view header_in(std::string_view text) { return text.substr(0, text.size() - kHarmonyMessage.size()); }

// Returns whether `text` may be the beginning of a header.
bool may_be_header(std::string_view text) {
  for (const std::string_view beginning : {kRole, kHarmonyChannel, kHarmonyRecipient}) {
    if (text.starts_with(beginning) || beginning.starts_with(text)) return text.size() <= kMaxHarmonyHeaderBytes;
  }
  return false;
}

std::unique_ptr<CallBody> without_arguments(std::string name) {
  auto body = std::make_unique<JsonCallBody>(std::move(name));
  body->push('{');
  body->push('}');
  return body;
}

class HarmonyFormat final : public CallFormat {
 public:
  std::vector<std::string_view> marks() const override { return {kHarmonyStart, kHarmonyChannel}; }
  // The prompt ends with <|start|>assistant, so a turn's first header lacks the mark <|start|>. If its recipient comes
  // before its channel, the header begins with "to=": " to=functions.get<|channel|>…".
  bool may_begin_with(char c) const override { return c == kHarmonyRecipient[0]; }

  Head take_head(std::string_view seen, char c) override {
    const std::size_t size = seen.find(kHarmonyMessage);
    if (size == std::string_view::npos) {
      const std::string more = std::string(seen) + c;
      const bool good =
          may_be_header(more) && (!more.ends_with(kHarmonyMessage) || !function_in(header_in(more)).empty());
      return {good ? Head::Kind::kOpen : Head::Kind::kRefused};
    }
    const std::string_view behind = without_spaces_in_front(seen.substr(size + kHarmonyMessage.size()));
    if (behind.empty() && is_call_space(c)) return {};
    std::string name = function_in(seen.substr(0, size));
    if (behind.empty() && c == '{') return {Head::Kind::kBody, std::make_unique<JsonCallBody>(std::move(name))};
    switch (take_tail(std::string(behind) + c)) {
      case Tail::kOpen: return {};
      case Tail::kDone: return {Head::Kind::kWholeCall, without_arguments(std::move(name))};
      default: return {Head::Kind::kRefused};
    }
  }

  // Accepts a call whose text ends directly after <|message|>, and gives it no arguments. The end tag may be missing,
  // because it is a token that ends the turn and therefore does not appear in the text.
  std::unique_ptr<CallBody> end_in_head(std::string_view seen) override {
    seen = without_spaces_around(seen);
    if (!seen.ends_with(kHarmonyMessage)) return nullptr;
    return without_arguments(function_in(header_in(seen)));
  }

  Tail take_tail(std::string_view seen) override {
    Tail tail = Tail::kNone;
    for (const std::string_view end : {kHarmonyCall, kHarmonyEnd, kHarmonyReturn}) {
      if (seen == end) return Tail::kDone;
      if (end.starts_with(seen)) tail = Tail::kOpen;
    }
    return tail;
  }
};

}  // namespace

std::unique_ptr<CallFormat> make_harmony_format(KnownTools /*tools*/) { return std::make_unique<HarmonyFormat>(); }

}  // namespace tessera
