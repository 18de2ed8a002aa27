#include "tessera/plugin/chat_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tessera/plugin/c_table.h"
#include "tessera/plugin/chat_parser.h"

namespace tessera::plugin {
namespace {

using Kind = ChatPiece::Kind;
using Part = ChatFormat::Part;

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

class PluginChatFormat final : public ChatFormat {
 public:
  explicit PluginChatFormat(const tessera_plugin_chat_format& table)
      : table_(table),
        name_(table.name),
        marks_{.opening = text_or_empty(table.reasoning_opening), .closing = text_or_empty(table.reasoning_closing)} {}

  const std::string& name() const override { return name_; }
  bool finds(Part part) const override {
    const int bit = part == Part::kCalls ? TESSERA_PLUGIN_FINDS_CALLS : TESSERA_PLUGIN_FINDS_REASONING;
    return (table_.finds & bit) != 0;
  }
  bool reads_special_tokens() const override { return table_.special_tokens != 0; }
  ReasoningMarks reasoning_marks() const override { return marks_; }
  Result<std::unique_ptr<ChatParser>> begin(const Request& request) const override {
    return TRY(PluginChatParser::begin(table_, request));
  }

 private:
  tessera_plugin_chat_format table_;
  std::string name_;
  ReasoningMarks marks_;
};

// Passes the text to a parser in fragments of `bytes` bytes and returns all pieces. Consecutive pieces of the same kind
// are joined, except kCall.
Result<std::vector<ChatPiece>> read_text(const ChatFormat& format, Part part, std::string_view text,
                                         std::size_t bytes) {
  const std::unique_ptr<ChatParser> parser = TRY(format.begin({.part = part}));
  std::vector<ChatPiece> all;
  const auto join = [&](std::vector<ChatPiece> more) {
    for (ChatPiece& piece : more) {
      if (all.empty() || all.back().kind != piece.kind || piece.kind == Kind::kCall) {
        all.push_back(std::move(piece));
      } else {
        all.back().text += piece.text;
      }
    }
  };
  for (std::size_t at = 0; at < text.size(); at += bytes) join(TRY(parser->push(text.substr(at, bytes))));
  join(TRY(parser->finish()));
  return all;
}

std::string shown(const std::vector<ChatPiece>& pieces) {
  constexpr std::string_view kNames[] = {"content", "reasoning", "call", "arguments"};
  std::string text;
  for (const ChatPiece& piece : pieces)
    text +=
        fmt::format("{}{} \"{}\"", text.empty() ? "" : ", ", kNames[static_cast<std::size_t>(piece.kind)], piece.text);
  return text.empty() ? "nothing" : text;
}

Status check_example(const ChatFormat& format, Part part, std::string_view example) {
  const std::vector<ChatPiece> whole = TRY(read_text(format, part, example, std::max<std::size_t>(example.size(), 1)));
  const std::vector<ChatPiece> bytes = TRY(read_text(format, part, example, 1));
  if (whole != bytes)
    return invalid_argument(
        fmt::format("it reads its example as {}; where it is cut at every byte, as {}", shown(whole), shown(bytes)));
  const Kind wanted = part == Part::kCalls ? Kind::kCall : Kind::kReasoning;
  if (std::ranges::find(whole, wanted, &ChatPiece::kind) == whole.end())
    return invalid_argument(fmt::format("it finds no {} in its example, but {}",
                                        part == Part::kCalls ? "call" : "reasoning", shown(whole)));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (whole[i].kind != Kind::kCall) continue;
    const bool has_arguments = i + 1 < whole.size() && whole[i + 1].kind == Kind::kArguments;
    const Result<Json> arguments =
        Json::parse(has_arguments ? whole[i + 1].text : "", fmt::format("what its example gives to {}", whole[i].text));
    TRY(arguments.status());
    if (!arguments->is_object())
      return invalid_argument(
          fmt::format("its example gives {} to {}; arguments are an object", arguments->dump(), whole[i].text));
  }
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const ChatFormat>> make_plugin_chat_format(const tessera_plugin_chat_format* given) {
  const tessera_plugin_chat_format table = TRY(copy_table(given, "chat format"));
  TRY(check_word(table.name, "chat format"));
  const std::string what = fmt::format("chat format {}", table.name);
  TRY(check_set(table.begin, what, "begin"));
  TRY(check_set(table.push, what, "push"));
  TRY(check_set(table.finish, what, "finish"));
  TRY(check_set(table.release, what, "release"));
  TRY(check_set(table.example, what, "example"));
  if (table.finds < TESSERA_PLUGIN_FINDS_REASONING ||
      table.finds > (TESSERA_PLUGIN_FINDS_REASONING | TESSERA_PLUGIN_FINDS_CALLS))
    return invalid_argument(
        fmt::format("{}: finds is {}; accepted are reasoning (1), calls (2) and both (3)", what, table.finds));
  auto format = std::make_shared<const PluginChatFormat>(table);
  for (const Part part : {Part::kReasoning, Part::kCalls})
    if (format->finds(part)) TRY(check_example(*format, part, table.example).with_context(what));
  return std::shared_ptr<const ChatFormat>(std::move(format));
}

}  // namespace tessera::plugin
