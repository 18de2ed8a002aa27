#include "tessera/server/chat_text.h"

#include <optional>
#include <utility>

#include "tessera/server/api_job.h"
#include "tessera/server/json_scanner.h"
#include "tessera/server/reasoning_parser.h"

namespace tessera {
namespace {

// The elements of a JSON list of calls, [{"name", "parameters"}, …], as they become complete. The grammar keeps the
// text well-formed; one that is cut off loses its last call.
class CallList {
 public:
  void push(std::string_view text, std::vector<ToolCallDelta>& calls) {
    for (const char c : text) {
      if (!scanner_ && c != '{') continue;
      if (!scanner_) scanner_.emplace();
      element_ += c;
      if (scanner_->push(c) != JsonScanner::Part::kError && !scanner_->done()) continue;
      scanner_.reset();
      add(std::exchange(element_, {}), calls);
    }
  }

 private:
  void add(const std::string& element, std::vector<ToolCallDelta>& calls) {
    const Result<Json> call = Json::parse(element, "the call");
    if (!call.ok()) return;
    const Json* name = call->find("name");
    const Json* parameters = call->find("parameters");
    if (name == nullptr || !name->is_string() || parameters == nullptr) return;
    calls.push_back(
        {.index = count_++, .id = make_id("call_"), .name = name->as_string(), .arguments = parameters->dump()});
  }

  std::optional<JsonScanner> scanner_;  // inside an element
  std::string element_;
  int count_ = 0;
};

}  // namespace

struct ChatText::Impl {
  explicit Impl(const ChatTextStyle& given) : style(given) {
    // Both names were checked when the server was made.
    if (!style.reasoning_parser.empty()) {
      Result<ReasoningParser> parser = ReasoningParser::create(style.reasoning_parser, style.prompt_opens_reasoning);
      if (parser.ok()) reasoning = *std::move(parser);
    }
    if (style.choice == ToolChoice::kAuto) {
      Result<ToolCallParser> parser =
          ToolCallParser::create(style.tool_call_parser, style.tools, [] { return make_id("call_"); });
      if (parser.ok()) tools = *std::move(parser);
    }
  }

  void push_named(std::string_view text, ChatPieces& pieces) {
    ToolCallDelta delta{.index = 0, .arguments = std::string(text)};
    if (!std::exchange(named_begun, true)) {
      delta.id = make_id("call_");
      delta.name = style.named;
    }
    pieces.calls.push_back(std::move(delta));
  }

  void add_tool_text(ToolText text, ChatPieces& pieces) const {
    pieces.content += text.content;
    for (ToolCallDelta& delta : text.calls) {
      if (style.parallel || delta.index == 0) pieces.calls.push_back(std::move(delta));
    }
  }

  void push_content(std::string_view text, ChatPieces& pieces) {
    if (tools) {
      add_tool_text(tools->push(text), pieces);
    } else {
      pieces.content += text;
    }
  }

  void push_free(std::string_view text, ChatPieces& pieces) {
    if (!reasoning) {
      push_content(text, pieces);
      return;
    }
    ReasoningText parts = reasoning->push(text);
    pieces.reasoning = std::move(parts.reasoning);
    push_content(parts.content, pieces);
  }

  const ChatTextStyle& style;
  CallList required{};
  bool named_begun = false;
  std::optional<ReasoningParser> reasoning{};
  std::optional<ToolCallParser> tools{};
};

ChatText::ChatText(const ChatTextStyle& style) : impl_(std::make_unique<Impl>(style)) {}
ChatText::ChatText(ChatText&&) noexcept = default;
ChatText::~ChatText() = default;

ChatPieces ChatText::push(std::string_view text) {
  ChatPieces pieces;
  if (text.empty()) return pieces;
  switch (impl_->style.choice) {
    case ToolChoice::kNamed: impl_->push_named(text, pieces); break;
    case ToolChoice::kRequired: impl_->required.push(text, pieces.calls); break;
    case ToolChoice::kNone:
    case ToolChoice::kAuto: impl_->push_free(text, pieces); break;
  }
  return pieces;
}

ChatPieces ChatText::finish() {
  ChatPieces pieces;
  if (impl_->reasoning) {
    ReasoningText parts = impl_->reasoning->finish();
    pieces.reasoning = std::move(parts.reasoning);
    impl_->push_content(parts.content, pieces);
  }
  if (impl_->tools) impl_->add_tool_text(impl_->tools->finish(), pieces);
  return pieces;
}

bool ChatText::in_reasoning() const { return impl_->reasoning && impl_->reasoning->in_reasoning(); }

}  // namespace tessera
