// The interface of a format in which models mark their reasoning. An object holds the state of one text, so each
// ReasoningParser has its own object.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

struct ReasoningText {
  std::string reasoning{};  // without the tags and without white space at its ends
  std::string content{};    // after reasoning, without white space at its beginning
};

class ReasoningFormat {
 public:
  virtual ~ReasoningFormat() = default;

  virtual ReasoningText push(std::string_view text) = 0;
  // Returns the text that was held back.
  virtual ReasoningText finish() = 0;
  // Returns whether the next text belongs to the reasoning, as far as the text so far shows.
  virtual bool in_reasoning() const = 0;
};

// Passes on reasoning without the white space at its ends. Holds white space back until other text follows.
class TrimmedText {
 public:
  void add(std::string_view text, std::string& out);
  // Ends the text; the next add() begins another text.
  void end();
  bool empty() const { return empty_; }

 private:
  std::string spaces_{};
  bool empty_ = true;  // only white space has come so far
};

}  // namespace tessera
