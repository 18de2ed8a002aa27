// The format llama3. The whole text is {"name": …, "parameters": {…}}, or the call comes after <|python_tag|>. ";"
// separates calls.
#include "tessera/server/tools/call_formats.h"
#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/json_call_body.h"

namespace tessera {
namespace {

class Llama3Format final : public CallFormat {
 public:
  std::vector<std::string_view> marks() const override { return {"<|python_tag|>"}; }
  bool may_begin_with(char c) const override { return c == '{'; }

  Head take_head(std::string_view /*seen*/, char c) override {
    if (c == '{') return {Head::Kind::kBody, std::make_unique<JsonCallBody>()};
    return {is_call_space(c) ? Head::Kind::kOpen : Head::Kind::kRefused};
  }

  Tail take_tail(std::string_view seen) override { return seen == ";" ? Tail::kNextCall : Tail::kNone; }
};

}  // namespace

std::unique_ptr<CallFormat> make_llama3_format(KnownTools /*tools*/) { return std::make_unique<Llama3Format>(); }

}  // namespace tessera
