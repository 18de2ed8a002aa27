// The calls of DeepSeek V3.2 (deepseekv32). Values with string="false" are JSON:
//
//   <｜DSML｜function_calls>
//   <｜DSML｜invoke name="NAME">
//   <｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter> …
//   </｜DSML｜invoke> …
//   </｜DSML｜function_calls>
#include "tessera/server/tools/call_formats.h"
#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/tagged_call_body.h"

namespace tessera {
namespace {

constexpr std::string_view kListBegin = "<｜DSML｜function_calls>";
constexpr std::string_view kListEnd = "</｜DSML｜function_calls>";
constexpr std::string_view kBegin = "<｜DSML｜invoke name=\"";
constexpr std::string_view kNameEnd = "\">";
constexpr CallTags::ValueBegin kValueBegins[] = {{.tag = "string=\"true\">", .values = CallTags::Values::kStrings},
                                                 {.tag = "string=\"false\">", .values = CallTags::Values::kJson}};
constexpr CallTags kTags{.name_begin = "<｜DSML｜parameter name=\"",
                         .name_end = "\"",
                         .value_begins = kValueBegins,
                         .value_end = "</｜DSML｜parameter>",
                         .end = "</｜DSML｜invoke>"};

class DsmlFormat final : public CallFormat {
 public:
  explicit DsmlFormat(KnownTools tools) : tools_(tools) {}

  std::vector<std::string_view> marks() const override { return {kListBegin, kBegin, kListEnd}; }

  Mark begin(std::string_view mark, Place place) override {
    if (mark != kListEnd) return Mark::kHead;
    return place.after_calls ? Mark::kSilent : Mark::kContent;
  }

  Head take_head(std::string_view seen, char c) override {
    if (seen.starts_with(kListBegin)) seen = without_spaces_in_front(seen.substr(kListBegin.size()));
    if (!seen.starts_with(kBegin)) {
      const bool good = (seen.empty() && is_call_space(c)) || kBegin.starts_with(std::string(seen) + c);
      return {good ? Head::Kind::kOpen : Head::Kind::kRefused};
    }
    seen.remove_prefix(kBegin.size());
    const std::size_t size = seen.find('"');
    if (seen.ends_with(kNameEnd)) {
      const std::string name(seen.substr(0, size));
      return {Head::Kind::kBody, std::make_unique<TaggedCallBody>(kTags, name, tools_.parameters(name))};
    }
    const bool good = size == std::string_view::npos ? c != '<' && c != '\n' && (c != '"' || !seen.empty()) : c == '>';
    return {good ? Head::Kind::kOpen : Head::Kind::kRefused};
  }

 private:
  KnownTools tools_;
};

}  // namespace

std::unique_ptr<CallFormat> make_dsml_format(KnownTools tools) { return std::make_unique<DsmlFormat>(tools); }

}  // namespace tessera
