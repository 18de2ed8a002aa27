#include "tessera/server/tools/python_literal.h"

#include <algorithm>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/parameter_types.h"

namespace tessera {
namespace {

// Reads `text_` from its front and appends the JSON to `out_`.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<std::string> read() {
    text_ = without_spaces_in_front(text_);
    const bool is_collection = !text_.empty() && std::string_view("[({").find(text_[0]) != std::string_view::npos;
    if (!is_collection || !value(0) || !without_spaces_in_front(text_).empty()) return std::nullopt;
    return std::move(out_);
  }

 private:
  bool value(int depth) {
    text_ = without_spaces_in_front(text_);
    if (text_.empty() || depth > kMaxJsonDepth) return false;
    switch (text_[0]) {
      case '[': return items(']', depth);
      case '(': return items(')', depth);
      case '{': return items('}', depth);
      case '\'':
      case '"': return string();
      default: return word("None", "null") || word("True", "true") || word("False", "false") || number();
    }
  }

  // Reads a list, a tuple or a dict up to `end`.
  bool items(char end, int depth) {
    const bool is_dict = end == '}';
    text_.remove_prefix(1);
    out_ += is_dict ? '{' : '[';
    for (bool first = true; !take(end); first = false) {
      if (!first && !take(',')) return false;
      // Accepts a comma before the end, as in Python.
      if (!first && take(end)) break;
      if (!first) out_ += ", ";
      if (is_dict && !key()) return false;
      if (!value(depth + 1)) return false;
    }
    out_ += is_dict ? '}' : ']';
    return true;
  }

  bool key() {
    text_ = without_spaces_in_front(text_);
    if (!text_.starts_with('\'') && !text_.starts_with('"')) return false;
    if (!string() || !take(':')) return false;
    out_ += ": ";
    return true;
  }

  bool string() {
    const char quote = text_[0];
    std::string read;
    for (std::size_t i = 1; i < text_.size(); ++i) {
      if (text_[i] == quote) {
        text_.remove_prefix(i + 1);
        out_ += '"';
        append_escaped(out_, read);
        out_ += '"';
        return true;
      }
      if (text_[i] != '\\') {
        read += text_[i];
        continue;
      }
      if (++i == text_.size()) return false;
      constexpr std::string_view kNames = "\\'\"nrt";
      constexpr std::string_view kValues = "\\'\"\n\r\t";
      const std::size_t at = kNames.find(text_[i]);
      if (at == std::string_view::npos) return false;
      read += kValues[at];
    }
    return false;
  }

  bool number() {
    const std::size_t size = std::min(text_.find_first_not_of("+-.0123456789eE"), text_.size());
    const Result<Json> read = Json::parse(text_.substr(0, size), "the number");
    if (!read.ok() || !read->is_number()) return false;
    out_ += text_.substr(0, size);
    text_.remove_prefix(size);
    return true;
  }

  bool word(std::string_view python, std::string_view json) {
    if (!text_.starts_with(python)) return false;
    text_.remove_prefix(python.size());
    out_ += json;
    return true;
  }

  bool take(char c) {
    text_ = without_spaces_in_front(text_);
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  std::string_view text_;
  std::string out_;
};

}  // namespace

std::optional<std::string> python_literal_as_json(std::string_view text) { return Reader(text).read(); }

}  // namespace tessera
