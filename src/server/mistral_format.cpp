// mistral: [TOOL_CALLS] [{"name": …, "arguments": {…}}, …], at the beginning of the text also without the mark.
#include "tessera/server/call_formats.h"
#include "tessera/server/call_text.h"
#include "tessera/server/json_call_body.h"

namespace tessera {
namespace {

constexpr std::string_view kBegin = "[TOOL_CALLS]";

class MistralFormat final : public CallFormat {
 public:
  std::vector<std::string_view> marks() const override { return {kBegin}; }
  bool may_begin_with(char c) const override { return c == '['; }

  Mark begin(std::string_view /*mark*/, Place /*place*/) override {
    in_list_ = false;
    return Mark::kHead;
  }

  Head take_head(std::string_view /*seen*/, char c) override {
    if (is_call_space(c)) return {};
    if (in_list_ && c == '{') return {Head::Kind::kBody, std::make_unique<JsonCallBody>()};
    if (in_list_ || c != '[') return {Head::Kind::kRefused};
    in_list_ = true;
    return {};
  }

  Tail take_tail(std::string_view seen) override {
    if (seen == ",") return Tail::kNextCall;
    return seen == "]" ? Tail::kDone : Tail::kNone;
  }

 private:
  bool in_list_ = false;  // behind "["
};

}  // namespace

std::unique_ptr<CallFormat> make_mistral_format(KnownTools /*tools*/) { return std::make_unique<MistralFormat>(); }

}  // namespace tessera
