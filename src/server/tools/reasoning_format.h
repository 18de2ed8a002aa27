// One way in which models mark their reasoning. ReasoningParser has one for its text.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

struct ReasoningText {
  std::string reasoning{};  // without the tags, and without white space at its ends
  std::string content{};    // behind reasoning: without white space at its beginning
};

class ReasoningFormat {
 public:
  virtual ~ReasoningFormat() = default;

  virtual ReasoningText push(std::string_view text) = 0;
  // Hands out the text that was held back.
  virtual ReasoningText finish() = 0;
  // Whether what comes next belongs to the reasoning, as far as is known.
  virtual bool in_reasoning() const = 0;
};

// Reasoning without the white space at its ends: holds it back until something follows.
class TrimmedText {
 public:
  void add(std::string_view text, std::string& out);
  // The text has ended; what is added next is another.
  void end();
  bool empty() const { return empty_; }

 private:
  std::string spaces_{};
  bool empty_ = true;  // nothing but white space
};

}  // namespace tessera
