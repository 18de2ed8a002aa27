#include "tessera/server/openai/chat_text.h"

#include <optional>
#include <utility>

#include "tessera/server/api_job.h"
#include "tessera/server/reasoning/reasoning_parser.h"
#include "tessera/server/tools/json_call_body.h"
#include "tessera/server/tools/outside_format.h"

namespace tessera {
namespace {

// Reads the elements of a JSON list of calls, [{"name", "parameters"}, …], and returns their arguments as they arrive.
// The grammar keeps the text well-formed. If the text is cut off, the last call has only the arguments up to the cut.
class CallList {
 public:
  explicit CallList(std::string_view id_prefix) : id_prefix_(id_prefix) {}

  void push(std::string_view text, std::vector<ToolCallDelta>& calls) {
    for (const char c : text) {
      if (!body_ && c != '{') continue;
      if (!body_) body_.emplace();
      if (body_->push(c) == CallBody::State::kOpen) continue;
      hand_on(calls);
      body_.reset();
      begun_ = false;
    }
    if (body_) hand_on(calls);
  }

 private:
  void hand_on(std::vector<ToolCallDelta>& calls) {
    if (!body_->is_call()) return;
    if (!std::exchange(begun_, true))
      calls.push_back({.index = count_++, .id = make_id(id_prefix_), .name = body_->name()});
    const std::string arguments = body_->take_arguments();
    if (arguments.empty()) return;
    if (calls.empty() || calls.back().index != count_ - 1) calls.push_back({.index = count_ - 1});
    calls.back().arguments += arguments;
  }

  std::string_view id_prefix_;
  std::optional<JsonCallBody> body_;  // set while inside an element
  bool begun_ = false;                // the element's name was passed on
  int count_ = 0;
};

}  // namespace

struct ChatText::Impl {
  explicit Impl(const ChatTextStyle& given) : style(given) { status = begin(); }

  Status begin() {
    if (style.reasoning_format != nullptr) {
      outside_reasoning = TRY(OutsideReasoning::begin(style.reasoning_format, style.reasoning_start));
    } else if (!style.reasoning_parser.empty()) {
      reasoning = TRY(ReasoningParser::create(style.reasoning_parser, style.prompt_opens_reasoning));
    }
    if (style.choice != ToolChoice::kAuto) return ok_status();
    const auto new_id = [prefix = style.id_prefix] { return make_id(prefix); };
    if (style.call_format != nullptr) {
      outside_tools = TRY(OutsideCalls::begin(style.call_format, style.tools, new_id));
    } else {
      tools = TRY(ToolCallParser::create(style.tool_call_parser, style.tools, new_id));
    }
    return ok_status();
  }

  void push_named(std::string_view text, ChatPieces& pieces) {
    ToolCallDelta delta{.index = 0, .arguments = std::string(text)};
    if (!std::exchange(named_begun, true)) {
      delta.id = make_id(style.id_prefix);
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

  Status push_content(std::string_view text, ChatPieces& pieces) {
    if (text.empty()) return ok_status();
    if (outside_tools) {
      add_tool_text(TRY(outside_tools->push(text)), pieces);
    } else if (tools) {
      add_tool_text(tools->push(text), pieces);
    } else {
      pieces.content += text;
    }
    return ok_status();
  }

  Status push_free(std::string_view text, ChatPieces& pieces) {
    if (!reasoning && !outside_reasoning) return push_content(text, pieces);
    ReasoningText parts = outside_reasoning ? TRY(outside_reasoning->push(text)) : reasoning->push(text);
    pieces.reasoning = std::move(parts.reasoning);
    return push_content(parts.content, pieces);
  }

  Status finish(ChatPieces& pieces) {
    if (reasoning || outside_reasoning) {
      ReasoningText parts = outside_reasoning ? TRY(outside_reasoning->finish()) : reasoning->finish();
      pieces.reasoning = std::move(parts.reasoning);
      TRY(push_content(parts.content, pieces));
    }
    if (outside_tools) add_tool_text(TRY(outside_tools->finish()), pieces);
    if (tools) add_tool_text(tools->finish(), pieces);
    return ok_status();
  }

  const ChatTextStyle& style;
  Status status{};
  CallList required{style.id_prefix};
  bool named_begun = false;
  // Two pairs of parsers, one pair for reasoning and one pair for calls. In each pair at most one member is set: the
  // server's own parser or the plugin format's.
  std::optional<ReasoningParser> reasoning{};
  std::optional<OutsideReasoning> outside_reasoning{};
  std::optional<ToolCallParser> tools{};
  std::optional<OutsideCalls> outside_tools{};
};

ChatText::ChatText(const ChatTextStyle& style) : impl_(std::make_unique<Impl>(style)) {}
ChatText::ChatText(ChatText&&) noexcept = default;
ChatText::~ChatText() = default;

ChatPieces ChatText::push(std::string_view text) {
  ChatPieces pieces;
  if (text.empty() || !impl_->status.ok()) return pieces;
  switch (impl_->style.choice) {
    case ToolChoice::kNamed: impl_->push_named(text, pieces); break;
    case ToolChoice::kRequired: impl_->required.push(text, pieces.calls); break;
    case ToolChoice::kNone:
    case ToolChoice::kAuto: impl_->status = impl_->push_free(text, pieces); break;
  }
  return pieces;
}

ChatPieces ChatText::finish() {
  ChatPieces pieces;
  if (impl_->status.ok()) impl_->status = impl_->finish(pieces);
  return pieces;
}

bool ChatText::in_reasoning() const {
  return (impl_->reasoning && impl_->reasoning->in_reasoning()) ||
         (impl_->outside_reasoning && impl_->outside_reasoning->in_reasoning());
}

const Status& ChatText::status() const { return impl_->status; }

}  // namespace tessera
