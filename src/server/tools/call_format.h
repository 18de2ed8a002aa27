// One format in which models write tool calls: a mark, a head, a body (call_body.h) and a tail.
//
//   <tool_call>  \n{"name": "get", "arguments": {"a": 1}}  \n</tool_call>
//   mark         head and body                             tail
//
// ToolCallParser feeds the format byte by byte, and holds back text until it is certain whether the text is a call.
// Text that is not a call becomes content. One object reads all calls of one text, one after the other.
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
  // The place in the text where a mark was found.
  struct Place {
    bool at_beginning = false;  // only white space comes before the mark
    bool after_calls = false;
  };
  enum class Mark : std::uint8_t {
    kContent,  // the mark is content
    kSilent,   // the mark is dropped, because it belongs to the calls before it
    kHead,     // the mark begins a call
  };
  struct Head {
    enum class Kind : std::uint8_t {
      kOpen,       // the byte belongs to the head
      kRefused,    // the text is not a call
      kBody,       // the byte is the first of `body`
      kWholeCall,  // the byte is the last of a call without arguments; `body` is complete
    };
    Kind kind = Kind::kOpen;
    std::unique_ptr<CallBody> body{};
  };
  enum class Tail : std::uint8_t {
    kOpen,
    kDone,      // the text so far is the tail
    kNextCall,  // the text so far is the mark of another call
    kNone,      // the call has no tail: the text so far comes after the call
  };

  virtual ~CallFormat() = default;

  // Returns the marks. No mark is empty or a prefix of another mark. The views outlive the format.
  virtual std::vector<std::string_view> marks() const = 0;
  // Returns whether a call without a mark may begin with `c`, the text's first byte after white space.
  virtual bool may_begin_with(char /*c*/) const { return false; }
  // Classifies a mark. `mark` is "" if the call has none.
  virtual Mark begin(std::string_view /*mark*/, Place /*place*/) { return Mark::kHead; }
  // Takes the next byte `c` of the head. `seen`: the mark and the text after it, without `c`.
  virtual Head take_head(std::string_view seen, char c) = 0;
  // Called if the whole text ends within a head. `seen`: the mark and the text after it. Returns a complete body if
  // this is a call nevertheless, else null.
  virtual std::unique_ptr<CallBody> end_in_head(std::string_view /*seen*/) { return nullptr; }
  // Classifies `seen`, the text that has come after the body, without leading white space. `seen` is not empty.
  virtual Tail take_tail(std::string_view /*seen*/) { return Tail::kNone; }
};

}  // namespace tessera
