// The formats hermes and generic. A call in hermes is <tool_call>{"name": …, "arguments": {…}}</tool_call>. The format
// generic is the same, but at the beginning of the text the object may also stand without tags, with or without a
// Markdown fence.
#include "tessera/server/tools/call_formats.h"
#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/json_call_body.h"

namespace tessera {
namespace {

constexpr std::string_view kBegin = "<tool_call>";
constexpr std::string_view kEnd = "</tool_call>";
constexpr std::string_view kJsonFence = "```json";
constexpr std::string_view kFence = "```";

class HermesFormat : public CallFormat {
 public:
  std::vector<std::string_view> marks() const override { return {kBegin}; }

  Head take_head(std::string_view /*seen*/, char c) override {
    if (c == '{') return {Head::Kind::kBody, std::make_unique<JsonCallBody>()};
    return {is_call_space(c) ? Head::Kind::kOpen : Head::Kind::kRefused};
  }

  Tail take_tail(std::string_view seen) override {
    if (seen == end_) return Tail::kDone;
    return end_.starts_with(seen) ? Tail::kOpen : Tail::kNone;
  }

 protected:
  std::string_view end_ = kEnd;  // tag that closes the call; "": none
};

class GenericFormat final : public HermesFormat {
 public:
  std::vector<std::string_view> marks() const override { return {kBegin, kJsonFence}; }
  bool may_begin_with(char c) const override { return c == '{'; }

  Mark begin(std::string_view mark, Place place) override {
    if (mark == kJsonFence && !place.at_beginning) return Mark::kContent;
    end_ = mark == kJsonFence ? kFence : mark == kBegin ? kEnd : std::string_view();
    return Mark::kHead;
  }
};

}  // namespace

std::unique_ptr<CallFormat> make_hermes_format(KnownTools /*tools*/) { return std::make_unique<HermesFormat>(); }
std::unique_ptr<CallFormat> make_generic_format(KnownTools /*tools*/) { return std::make_unique<GenericFormat>(); }

}  // namespace tessera
