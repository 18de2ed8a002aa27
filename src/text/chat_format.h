// Forms of chats from outside: how a model writes reasoning and tool calls in its text. The server has forms of its own
// (server/tools/tool_call_parser.h, server/reasoning/reasoning_parser.h), and looks here for the names that are not
// among them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

// A part of a chat's text, as far as it has come: neighbours of one kind are one part, but for kCall.
struct ChatPiece {
  enum class Kind : std::uint8_t {
    kContent,
    kReasoning,
    kCall,       // begins a call: `text` is the name of the function
    kArguments,  // of the call that was begun last: part of the JSON text of an object
  };
  Kind kind = Kind::kContent;
  std::string text{};

  friend bool operator==(const ChatPiece&, const ChatPiece&) = default;
};

// Where a text begins that goes on from a prompt.
enum class ReasoningStart : std::uint8_t {
  kBefore,  // a turn of its own, or a message that has no reasoning yet
  kInside,  // the prompt ends inside the reasoning
  kBehind,  // it goes on with a message that has ended its reasoning
};

// What stands around reasoning in prompts; "": nothing does.
struct ReasoningMarks {
  std::string opening{};
  std::string closing{};

  // `prompt`: all of its text; `begun`: the message at its end that the text goes on with, "" where there is none.
  // Spaces and line ends at the end of the prompt, and of the mark, do not count.
  ReasoningStart start(std::string_view prompt, std::string_view begun) const;
};

// Reads one text, as it comes. Used by one thread at a time; after an error it is not called again.
class ChatParser {
 public:
  virtual ~ChatParser() = default;
  // `text` may be cut anywhere between two tokens. Pieces are whole UTF-8. An error is the form's fault, not the
  // text's.
  virtual Result<std::vector<ChatPiece>> push(std::string_view text) = 0;
  // The text has ended: what was held back.
  virtual Result<std::vector<ChatPiece>> finish() = 0;
};

// A form. Immutable and thread-safe.
class ChatFormat {
 public:
  // What a parser is to find. Its pieces are content, and reasoning or calls.
  enum class Part : std::uint8_t { kReasoning, kCalls };
  struct Request {
    Part part = Part::kCalls;
    // kCalls: [{"function": {"name": …, …}}, …], borrowed for the parser's life; null: any
    const Json* tools = nullptr;
    ReasoningStart start = ReasoningStart::kBefore;  // kReasoning: by the form's marks
  };

  virtual ~ChatFormat() = default;
  virtual const std::string& name() const = 0;
  virtual bool finds(Part part) const = 0;
  // Whether its marks are special tokens of the model, which the text must then have.
  virtual bool reads_special_tokens() const = 0;
  virtual ReasoningMarks reasoning_marks() const = 0;
  // Precondition: finds(request.part).
  virtual Result<std::unique_ptr<ChatParser>> begin(const Request& request) const = 0;
};

// The forms that a program brings. Adding is for one thread, before it is read; then immutable and thread-safe.
class ChatFormats {
 public:
  // kInvalidArgument for a name that is there already.
  Status add(std::shared_ptr<const ChatFormat> format);
  // Null where there is none of that name that finds `part`.
  std::shared_ptr<const ChatFormat> find(std::string_view name, ChatFormat::Part part) const;
  std::vector<std::string_view> names(ChatFormat::Part part) const;  // in the order of adding

 private:
  std::vector<std::shared_ptr<const ChatFormat>> formats_;
};

}  // namespace tessera
