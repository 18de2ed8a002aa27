// The format qwen3_coder. A call is
// <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n…</function>\n</tool_call>. Calls follow one
// another. The <tool_call> tags may be missing.
#include "tessera/server/tools/call_formats.h"
#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/tagged_call_body.h"

namespace tessera {
namespace {

constexpr std::string_view kBegin = "<tool_call>";
constexpr std::string_view kEnd = "</tool_call>";
constexpr std::string_view kFunction = "<function=";
constexpr CallTags::ValueBegin kValueBegins[] = {{}};
constexpr CallTags kTags{.name_begin = "<parameter=",
                         .name_end = ">",
                         .value_begins = kValueBegins,
                         .value_end = "</parameter>",
                         .end = "</function>",
                         .outer_end = kEnd,
                         .lines = true};

class Qwen3CoderFormat final : public CallFormat {
 public:
  explicit Qwen3CoderFormat(KnownTools tools) : tools_(tools) {}

  std::vector<std::string_view> marks() const override { return {kBegin, kFunction}; }

  Head take_head(std::string_view seen, char c) override {
    if (seen.starts_with(kBegin)) seen = without_spaces_in_front(seen.substr(kBegin.size()));
    if (!seen.starts_with(kFunction)) {
      const bool good = (seen.empty() && is_call_space(c)) || kFunction.starts_with(std::string(seen) + c);
      return {good ? Head::Kind::kOpen : Head::Kind::kRefused};
    }
    seen.remove_prefix(kFunction.size());
    if (seen.ends_with('>')) {
      const std::string name(seen.substr(0, seen.size() - 1));
      return {Head::Kind::kBody, std::make_unique<TaggedCallBody>(kTags, name, tools_.parameters(name))};
    }
    const bool good = c != '<' && !is_call_space(c) && (c != '>' || !seen.empty());
    return {good ? Head::Kind::kOpen : Head::Kind::kRefused};
  }

  Tail take_tail(std::string_view seen) override {
    if (seen == kEnd) return Tail::kDone;
    return kEnd.starts_with(seen) ? Tail::kOpen : Tail::kNone;
  }

 private:
  KnownTools tools_;
};

}  // namespace

std::unique_ptr<CallFormat> make_qwen3_coder_format(KnownTools tools) {
  return std::make_unique<Qwen3CoderFormat>(tools);
}

}  // namespace tessera
