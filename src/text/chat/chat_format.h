// Defines chat formats, which plugins add. A chat format is the way in which a model writes reasoning and tool calls in
// its text. The server has formats of its own (server/tools/tool_call_parser.h, server/reasoning/reasoning_parser.h).
// It looks up all other names in ChatFormats.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

// A part of a chat's text, as a parser returns it. Neighbouring parts of one kind are merged, except kCall.
struct ChatPiece {
  enum class Kind : std::uint8_t {
    kContent,
    kReasoning,
    kCall,       // begins a call: `text` is the name of the function
    kArguments,  // a part of the newest call's arguments; all its parts together are the JSON text of an object
  };
  Kind kind = Kind::kContent;
  std::string text{};

  friend bool operator==(const ChatPiece&, const ChatPiece&) = default;
};

// The state of the reasoning at the end of a prompt, where the model's text begins.
enum class ReasoningStart : std::uint8_t {
  kBefore,  // a new turn, or a message without reasoning so far
  kInside,  // the prompt ends inside the reasoning
  kBehind,  // the message that the model continues has already ended its reasoning
};

// The marks around reasoning in prompts; "": there are none.
struct ReasoningMarks {
  std::string opening{};
  std::string closing{};

  // Returns the state of the reasoning where the model's text begins. `prompt` is the whole prompt. If the prompt ends
  // with an unfinished message, which the model continues, `begun` is the text of that message; otherwise it is "".
  // Spaces and line ends at the end of `prompt` and of `opening` are ignored.
  ReasoningStart start(std::string_view prompt, std::string_view begun) const;
};

// Parses one text while it arrives. Only one thread at a time may use a parser. It must not be used after an error.
class ChatParser {
 public:
  virtual ~ChatParser() = default;
  // Parses the next part of the text. A part may end after any token. The returned pieces are valid UTF-8. An error
  // means that the format's code is at fault, not the text.
  virtual Result<std::vector<ChatPiece>> push(std::string_view text) = 0;
  // Ends the text. Returns the pieces that were held back.
  virtual Result<std::vector<ChatPiece>> finish() = 0;
};

// A chat format. Immutable and thread-safe.
class ChatFormat {
 public:
  // The part of a text that a parser looks for. The parser's pieces are content and either reasoning or calls.
  enum class Part : std::uint8_t { kReasoning, kCalls };
  struct Request {
    Part part = Part::kCalls;
    // Used by kCalls only: the tools as [{"function": {"name": …, …}}, …], which must outlive the parser. Null: calls
    // of any function are accepted.
    const Json* tools = nullptr;
    ReasoningStart start = ReasoningStart::kBefore;  // used by kReasoning only: reasoning_marks().start(…)
  };

  virtual ~ChatFormat() = default;
  virtual const std::string& name() const = 0;
  virtual bool finds(Part part) const = 0;
  // Returns whether the format's marks are special tokens of the model. If so, the text must include special tokens.
  virtual bool reads_special_tokens() const = 0;
  virtual ReasoningMarks reasoning_marks() const = 0;
  // Begins to parse a text. Precondition: finds(request.part).
  virtual Result<std::unique_ptr<ChatParser>> begin(const Request& request) const = 0;
};

// The chat formats of all plugins. One thread adds all formats before any thread reads them. After that the object is
// immutable and thread-safe.
class ChatFormats {
 public:
  // Returns kInvalidArgument for a name that exists already.
  Status add(std::shared_ptr<const ChatFormat> format);
  // Returns null if no format of that name finds `part`.
  std::shared_ptr<const ChatFormat> find(std::string_view name, ChatFormat::Part part) const;
  std::vector<std::string_view> names(ChatFormat::Part part) const;  // in the order of adding

 private:
  std::vector<std::shared_ptr<const ChatFormat>> formats_;
};

}  // namespace tessera
