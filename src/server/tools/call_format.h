// One form in which models write tool calls: a mark, a head, a body (call_body.h) and a tail.
//
//   <tool_call>  \n{"name": "get", "arguments": {"a": 1}}  \n</tool_call>
//   mark         head and body                             tail
//
// ToolCallParser drives it byte by byte, keeps the text of what is not yet certain to be a call, and turns it into
// content where it is none. An object reads the calls of one text, one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/server/tools/call_body.h"

namespace tessera {

class CallFormat {
 public:
  // Where in the text a mark was found.
  struct Place {
    bool at_beginning = false;  // only white space before it
    bool after_calls = false;
  };
  enum class Mark : std::uint8_t {
    kContent,  // belongs to no call here
    kSilent,   // belongs to the calls before it
    kHead,     // begins a call
  };
  struct Head {
    enum class Kind : std::uint8_t {
      kOpen,       // the byte belongs to the head
      kRefused,    // this is no call
      kBody,       // the byte is the first of `body`
      kWholeCall,  // the byte is the last of a call without arguments, which `body` has already
    };
    Kind kind = Kind::kOpen;
    std::unique_ptr<CallBody> body{};
  };
  enum class Tail : std::uint8_t {
    kOpen,
    kDone,      // what was seen is the tail
    kNextCall,  // what was seen is the mark of a further call
    kNone,      // what was seen does not belong to the call
  };

  virtual ~CallFormat() = default;

  // None is empty or the beginning of another. They outlive the format.
  virtual std::vector<std::string_view> marks() const = 0;
  // Whether a call without a mark may begin with `c`, the first byte of the text but for white space.
  virtual bool may_begin_with(char /*c*/) const { return false; }
  // A mark, "" where the call has none.
  virtual Mark begin(std::string_view /*mark*/, Place /*place*/) { return Mark::kHead; }
  // `seen`: the mark and what has come behind it, without `c`.
  virtual Head take_head(std::string_view seen, char c) = 0;
  // The text ends behind `seen`. A body that is done where this is a call all the same, else null.
  virtual std::unique_ptr<CallBody> end_in_head(std::string_view /*seen*/) { return nullptr; }
  // `seen`: what has come behind the body, without white space in front; not empty.
  virtual Tail take_tail(std::string_view /*seen*/) { return Tail::kNone; }
};

}  // namespace tessera
