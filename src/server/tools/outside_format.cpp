#include "tessera/server/tools/outside_format.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tessera/server/tools/call_text.h"

namespace tessera {
namespace {

using Kind = ChatPiece::Kind;
using FormatPart = ChatFormat::Part;

}  // namespace

Result<OutsideReasoning> OutsideReasoning::begin(std::shared_ptr<const ChatFormat> format, ReasoningStart start) {
  std::unique_ptr<ChatParser> parser = TRY(format->begin({.part = FormatPart::kReasoning, .start = start}));
  return OutsideReasoning(std::move(format), std::move(parser), start == ReasoningStart::kInside);
}

Result<ReasoningText> OutsideReasoning::push(std::string_view text) { return sort(TRY(parser_->push(text))); }

Result<ReasoningText> OutsideReasoning::finish() { return sort(TRY(parser_->finish())); }

ReasoningText OutsideReasoning::sort(const std::vector<ChatPiece>& pieces) {
  ReasoningText out;
  for (const ChatPiece& piece : pieces) {
    in_reasoning_ = piece.kind == Kind::kReasoning;
    (in_reasoning_ ? out.reasoning : out.content) += piece.text;
  }
  return out;
}

Result<OutsideCalls> OutsideCalls::begin(std::shared_ptr<const ChatFormat> format, const Json& tools,
                                         ToolCallParser::NewId new_id) {
  const Json* const known = tools.is_array() ? &tools : nullptr;
  std::unique_ptr<ChatParser> parser = TRY(format->begin({.part = FormatPart::kCalls, .tools = known}));
  return OutsideCalls(std::move(format), std::move(parser), tools, std::move(new_id));
}

Result<ToolText> OutsideCalls::push(std::string_view text) { return sort(TRY(parser_->push(text))); }

Result<ToolText> OutsideCalls::finish() { return sort(TRY(parser_->finish())); }

Result<ToolText> OutsideCalls::sort(std::vector<ChatPiece> pieces) {
  ToolText out;
  Status status;
  for (ChatPiece& piece : pieces) {
    switch (piece.kind) {
      case Kind::kContent:
      case Kind::kReasoning: out.content += piece.text; break;
      case Kind::kCall: status = begin_call(std::move(piece.text), out); break;
      case Kind::kArguments: add_arguments(piece.text, out); break;
    }
    if (!status.ok()) return std::move(status).with_context(fmt::format("chat format {}", format_->name()));
  }
  return out;
}

Status OutsideCalls::begin_call(std::string name, ToolText& out) {
  if (calls_ > 0 && !broken_ && !arguments_.done())
    return internal_error(
        fmt::format("it began a call of \"{}\" before the arguments of \"{}\" were a whole object", name, name_));
  if (!tools_.knows(name))
    return internal_error(fmt::format("it called \"{}\", which is not a function of the request", name));
  name_ = std::move(name);
  arguments_ = {};
  broken_ = false;
  out.calls.push_back({.index = calls_++, .id = new_id_(), .name = name_});
  return ok_status();
}

// Takes a piece of the current call's arguments. The text up to the first byte that makes the JSON invalid is added to
// the arguments. The rest, and all later pieces of this call, become content.
void OutsideCalls::add_arguments(const std::string& text, ToolText& out) {
  std::size_t taken = 0;
  while (taken < text.size() && !broken_) {
    broken_ =
        arguments_.done() ? !is_call_space(text[taken]) : arguments_.push(text[taken]) == JsonScanner::Part::kError;
    if (!broken_) ++taken;
  }
  out.content += text.substr(taken);
  if (taken == 0) return;
  if (out.calls.empty() || out.calls.back().index != calls_ - 1) out.calls.push_back({.index = calls_ - 1});
  out.calls.back().arguments += text.substr(0, taken);
}

}  // namespace tessera
