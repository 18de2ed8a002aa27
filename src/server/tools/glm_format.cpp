// The format glm45. A call is <tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n…</tool_call>.
// Calls follow one another. GLM-4.7 writes no line breaks.
#include "tessera/server/tools/call_formats.h"
#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/tagged_call_body.h"

namespace tessera {
namespace {

constexpr std::string_view kBegin = "<tool_call>";
constexpr CallTags::ValueBegin kValueBegins[] = {{.tag = "<arg_value>"}};
constexpr CallTags kTags{.name_begin = "<arg_key>",
                         .name_end = "</arg_key>",
                         .value_begins = kValueBegins,
                         .value_end = "</arg_value>",
                         .end = "</tool_call>"};

class GlmFormat final : public CallFormat {
 public:
  explicit GlmFormat(KnownTools tools) : tools_(tools) {}

  std::vector<std::string_view> marks() const override { return {kBegin}; }

  Head take_head(std::string_view seen, char c) override {
    seen = without_spaces_in_front(seen.substr(kBegin.size()));
    const std::size_t size = seen.find_first_of(kCallSpaces);
    const std::string name(seen.substr(0, size));
    if (c == '<' && !name.empty()) {
      return {Head::Kind::kBody, std::make_unique<TaggedCallBody>(kTags, name, tools_.parameters(name))};
    }
    const bool in_name = size == std::string_view::npos && std::string_view("<>{}\"").find(c) == std::string_view::npos;
    return {in_name || is_call_space(c) ? Head::Kind::kOpen : Head::Kind::kRefused};
  }

 private:
  KnownTools tools_;
};

}  // namespace

std::unique_ptr<CallFormat> make_glm_format(KnownTools tools) { return std::make_unique<GlmFormat>(tools); }

}  // namespace tessera
