#include "tessera/plugin/chat_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/plugin/c_call.h"
#include "tessera/text/unicode.h"

namespace tessera::plugin {
namespace {

// A parser's output has at most kFreeBytes bytes, plus kBytesPerByte bytes for each byte of text. A byte of text
// becomes at most six bytes of JSON ("\u001f"), and the names of members are added, so more output cannot come from the
// model's text.
constexpr std::size_t kBytesPerByte = 16;
constexpr std::size_t kFreeBytes = 64 * 1024;

std::vector<std::string> functions_of(const Json* tools) {
  std::vector<std::string> names;
  if (tools == nullptr || !tools->is_array()) return names;
  for (const Json& tool : tools->as_array()) {
    const Json* function = tool.find("function");
    const Json* name = function == nullptr ? nullptr : function->find("name");
    if (name != nullptr && name->is_string()) names.push_back(name->as_string());
  }
  return names;
}

}  // namespace

PluginChatParser::PluginChatParser(const tessera_plugin_chat_format& format, const ChatFormat::Request& request)
    : format_(format),
      part_(request.part),
      tools_text_(request.tools == nullptr ? "" : request.tools->dump()),
      functions_(functions_of(request.tools)),
      chat_{.size = sizeof(chat_),
            .finds = part_ == ChatFormat::Part::kCalls ? TESSERA_PLUGIN_FINDS_CALLS : TESSERA_PLUGIN_FINDS_REASONING,
            .reasoning = request.start == ReasoningStart::kInside ? 1 : 0,
            .reasoned = request.start == ReasoningStart::kBehind ? 1 : 0,
            .tools = request.tools == nullptr ? nullptr : tools_text_.c_str(),
            .has_function = has_function,
            .host = this},
      pieces_{.size = sizeof(pieces_), .add = add, .host = this} {}

Result<std::unique_ptr<PluginChatParser>> PluginChatParser::begin(const tessera_plugin_chat_format& format,
                                                                  const ChatFormat::Request& request) {
  std::unique_ptr<PluginChatParser> made(new PluginChatParser(format, request));
  void* parser = nullptr;  // stored in parser_ only after begin() succeeded, because the destructor releases parser_
  TRY(call([&](tessera_plugin_error* error) {
        return made->format_.begin(made->format_.self, &made->chat_, &parser, error);
      }).with_context(made->context()));
  TRY(check_made(parser, "parser").with_context(made->context()));
  made->parser_ = parser;
  return made;
}

PluginChatParser::~PluginChatParser() {
  if (parser_ != nullptr) call_and_forget([&] { format_.release(parser_); });
}

std::string PluginChatParser::context() const { return fmt::format("chat format {}", format_.name); }

std::int32_t PluginChatParser::has_function(const tessera_plugin_chat* chat, const char* name, std::size_t bytes) {
  const auto& self = *static_cast<const PluginChatParser*>(chat->host);
  if (name == nullptr || bytes == 0) return 0;
  if (chat->tools == nullptr) return 1;
  // Compares the sizes first, so that no more bytes of `name` are read than a known name has, even if `bytes` is wrong.
  return std::ranges::any_of(self.functions_,
                             [&](const std::string& known) {
                               return known.size() == bytes && known.compare(0, bytes, name, bytes) == 0;
                             })
             ? 1
             : 0;
}

std::int32_t PluginChatParser::add(const tessera_plugin_pieces* pieces, std::int32_t kind, const char* data,
                                   std::size_t bytes, tessera_plugin_error* error) {
  auto& self = *static_cast<PluginChatParser*>(pieces->host);
  const Status status = self.add(kind, data, bytes);
  if (self.refused_.ok() && !status.ok()) self.refused_ = status;
  return to_c(status, error);
}

Status PluginChatParser::add(std::int32_t kind, const char* data, std::size_t bytes) {
  TRY(Status(refused_));
  const bool of_part = part_ == ChatFormat::Part::kCalls
                           ? kind == TESSERA_PLUGIN_CALL || kind == TESSERA_PLUGIN_ARGUMENTS
                           : kind == TESSERA_PLUGIN_REASONING;
  if (kind != TESSERA_PLUGIN_CONTENT && !of_part)
    return invalid_argument(fmt::format("it gave a piece of kind {}; accepted are {}", kind,
                                        part_ == ChatFormat::Part::kCalls ? "content (0), calls (2) and arguments (3)"
                                                                          : "content (0) and reasoning (1)"));
  const std::size_t most = kFreeBytes + kBytesPerByte * received_;
  if (bytes > most - std::min(most, taken_))
    return invalid_argument(
        fmt::format("it gave a piece of {} bytes, after {} others; a text of {} bytes comes to {} at "
                    "most",
                    bytes, taken_, received_, most));
  if (data == nullptr && bytes > 0) return invalid_argument(fmt::format("it gave a piece of {} bytes at null", bytes));
  if (kind == TESSERA_PLUGIN_CALL && bytes == 0) return invalid_argument("it gave a call without a name");
  if (kind == TESSERA_PLUGIN_ARGUMENTS && !has_call_) return invalid_argument("it gave arguments before a call");
  has_call_ = has_call_ || kind == TESSERA_PLUGIN_CALL;
  taken_ += bytes;
  if (bytes == 0) return ok_status();
  const auto of_kind = static_cast<ChatPiece::Kind>(kind);
  if (given_.empty() || given_.back().kind != of_kind || of_kind == ChatPiece::Kind::kCall)
    given_.push_back({.kind = of_kind});
  given_.back().text.append(data, bytes);
  return ok_status();
}

template <class F>
Result<std::vector<ChatPiece>> PluginChatParser::collect(const F& function, bool ended) {
  given_.clear();
  if (!held_.text.empty()) given_.push_back(std::exchange(held_, {}));
  const Status called = call(function);
  // If add() refused a piece, returns the error of add(). It is more precise than the plugin's own error, which is then
  // only a consequence.
  TRY(Status(refused_).with_context(context()));
  TRY(Status(called).with_context(context()));
  return settle(ended);
}

Result<std::vector<ChatPiece>> PluginChatParser::push(std::string_view text) {
  received_ += text.size();
  return collect(
      [&](tessera_plugin_error* error) { return format_.push(parser_, text.data(), text.size(), &pieces_, error); },
      /*ended=*/false);
}

Result<std::vector<ChatPiece>> PluginChatParser::finish() {
  return collect([&](tessera_plugin_error* error) { return format_.finish(parser_, &pieces_, error); }, /*ended=*/true);
}

// Returns the pieces of the current call. An incomplete UTF-8 character at the end is kept for the next call, unless
// the text has ended.
Result<std::vector<ChatPiece>> PluginChatParser::settle(bool ended) {
  if (!ended && !given_.empty() && given_.back().kind != ChatPiece::Kind::kCall) {
    ChatPiece& last = given_.back();
    const std::size_t whole = complete_utf8_prefix(last.text);
    held_ = {.kind = last.kind, .text = last.text.substr(whole)};
    last.text.resize(whole);
    if (last.text.empty()) given_.pop_back();
  }
  for (const ChatPiece& piece : given_) {
    const std::size_t wrong = find_invalid_utf8(piece.text);
    if (wrong != std::string::npos)
      return internal_error(fmt::format("{}: it gave a piece of {} bytes that is no UTF-8 at byte {}", context(),
                                        piece.text.size(), wrong));
  }
  return std::exchange(given_, {});
}

}  // namespace tessera::plugin
