// Collects the content of a turn in the form that chat templates take.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"

namespace tessera {

// Texts and images in their order. Adjacent texts become one.
class TurnContent {
 public:
  // `separator` is put between adjacent texts.
  explicit TurnContent(std::string_view separator = "\n") : separator_(separator) {}

  void add_text(std::string_view text);
  void add_image();
  // Adds the parts of `more` at the end.
  void add(const TurnContent& more);
  // Adds the content of a turn, which is a string or a list of text and image parts.
  void add_content(const Json& content);
  bool empty() const { return parts_.empty(); }
  // Returns a string, or a list of text and image parts if there are images. The object is empty afterwards.
  Json take();

 private:
  struct Part {
    bool is_image = false;
    std::string text{};  // empty for an image
  };

  std::string_view separator_;
  std::vector<Part> parts_;
  bool has_images_ = false;
};

}  // namespace tessera
