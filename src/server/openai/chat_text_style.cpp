#include "tessera/server/openai/chat_text_style.h"

#include <string_view>
#include <utility>
#include <vector>

#include "tessera/server/reasoning/reasoning_parser.h"
#include "tessera/server/tools/generic_tools.h"

namespace tessera {

ApiResult<ChatTextStyle> text_style_of(const ServedModel& model, const ToolFields& tools, const ChatPrompt& prompt,
                                       bool constrained, bool separate) {
  ChatTextStyle style{.choice = tools.choice, .named = tools.named, .parallel = tools.parallel};
  if (constrained) {
    if (tools.choice == ToolChoice::kAuto) style.choice = ToolChoice::kNone;
    return style;
  }
  if (separate && model.reasoning_format != nullptr) {
    style.reasoning_parser = model.reasoning_parser;
    style.reasoning_format = model.reasoning_format;
    style.reasoning_start = model.reasoning_format->reasoning_marks().start(prompt.text, prompt.begun);
  } else if (separate && !closes_reasoning(prompt.begun)) {
    style.reasoning_parser = model.reasoning_parser;
  }
  style.prompt_opens_reasoning = opens_reasoning(prompt.text) || is_inside_reasoning(prompt.begun);
  if (tools.choice == ToolChoice::kAuto) {
    if (model.tool_call_parser.empty()) {
      return unsupported_field(
          "tools",
          "this server finds no tool calls, because its --tool-call-parser is none; accepted: no tools, or a "
          "\"tool_choice\" of \"none\"");
    }
    style.tool_call_parser = model.tool_call_parser;
    style.call_format = model.call_format;
    style.tools = tools.tools;
  }
  return style;
}

std::vector<TokenId> reasoning_end_of(const ServedModel& model) {
  const std::string closing = model.reasoning_format != nullptr ? model.reasoning_format->reasoning_marks().closing
                                                                : reasoning_marks(model.reasoning_parser).closing;
  if (closing.empty() || model.tokenizer == nullptr) return {};
  Result<std::vector<TokenId>> ids = model.tokenizer->encode(closing, {.add_special_tokens = false});
  return ids.ok() ? *std::move(ids) : std::vector<TokenId>();
}

std::optional<ReasoningLimit> limit_reasoning(const ServedModel& model, const ChatTextStyle& style,
                                              std::int64_t tokens) {
  ReasoningLimit limit{.tokens = tokens};
  ReasoningMarks marks;
  if (style.reasoning_format != nullptr) {
    if (style.reasoning_start == ReasoningStart::kBehind) return std::nullopt;
    marks = style.reasoning_format->reasoning_marks();
    limit.opened = style.reasoning_start == ReasoningStart::kInside;
  } else {
    marks = reasoning_marks(style.reasoning_parser);
    limit.opened = style.prompt_opens_reasoning || begins_in_reasoning(style.reasoning_parser);
    limit.repeats = repeats_reasoning(style.reasoning_parser);
  }
  // Without an opening mark, the engine would count the answer as reasoning.
  if (marks.opening.empty() || marks.closing.empty() || model.reasoning_end.empty()) return std::nullopt;
  limit.opening = std::move(marks.opening);
  limit.closing = std::move(marks.closing);
  limit.closing_ids = model.reasoning_end;
  return limit;
}

// All of the server's own tool-call parsers search the text for special tokens. A plugin format says whether it does
// so.
bool needs_special_tokens(const ChatTextStyle& style) {
  const bool of_reasoning = style.reasoning_format != nullptr ? style.reasoning_format->reads_special_tokens()
                                                              : reads_special_tokens(style.reasoning_parser);
  if (of_reasoning || style.choice != ToolChoice::kAuto) return of_reasoning;
  return style.call_format == nullptr || style.call_format->reads_special_tokens();
}

std::string withdraw_generic_tools(const ServedModel& model, bool constrained, ToolFields& tools) {
  if (model.tool_call_parser != kGenericToolParser || !tools.tools.is_array()) return "";
  if (tools.choice != ToolChoice::kAuto || !constrained) return std::string(kGenericToolNote);
  tools = {};
  return std::string(kNoGenericToolsNote);
}

}  // namespace tessera
