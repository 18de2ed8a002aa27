#include "tessera/options/config_yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <exception>
#include <sstream>

#include "tessera/options/values.h"

namespace tessera {
namespace {

// Reads a document event by event. Unlike a tree of nodes, events show aliases and duplicate keys.
class Reader final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) fail(mark, "a second document begins; accepted is one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { scalar(mark, anchor, Json()); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { fail(mark, "aliases are not accepted"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // The library gives a plain scalar the tag "?", and a quoted scalar the tag "!".
    if (tag != "?" && tag != "!" && !tag.empty()) return fail(mark, fmt::format("the tag {} is not accepted", tag));
    scalar(mark, anchor, tag == "?" && !open_key() ? plain(value) : Json(value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, anchor, Json::array());
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    if (depth_ == 0) {
      is_map_ = true;
      ++depth_;
      return;
    }
    begin(mark, anchor, Json::object());
  }
  void OnMapEnd() override { --depth_; }

  Result<std::vector<ConfigEntry>> finish(const std::string& path) && {
    if (error_.ok() && !is_map_ && documents_ > 0 && !is_empty_)
      error_ = invalid_argument("1: no map; accepted are flags and values, \"page-size: 16\"");
    if (!error_.ok()) return invalid_argument(fmt::format("{}:{}", path, error_.message()));
    return std::move(entries_);
  }

 private:
  // Returns whether the next scalar is a key of the outermost map.
  bool open_key() const { return depth_ == 1 && is_map_ && !has_key_; }

  void fail(const YAML::Mark& mark, std::string_view what) {
    if (error_.ok()) error_ = invalid_argument(fmt::format("{}: {}", mark.line + 1, what));
  }

  void scalar(const YAML::Mark& mark, YAML::anchor_t anchor, Json value) {
    if (depth_ == 0 && value.is_null()) is_empty_ = true;
    if (open_key() && !value.is_string()) return fail(mark, "a key is empty");
    if (open_key()) {
      entries_.push_back({value.as_string(), mark.line + 1, {}});
      has_key_ = true;
      return;
    }
    add(mark, anchor, std::move(value));
  }

  void begin(const YAML::Mark& mark, YAML::anchor_t anchor, Json container) {
    if (open_key()) fail(mark, "a key is no plain text");
    add(mark, anchor, std::move(container));
    ++depth_;
  }

  // Stores `value` as the value of the most recent key, or as an item of that key's list. Drops values in deeper
  // containers, because check_shape() refuses such containers.
  void add(const YAML::Mark& mark, YAML::anchor_t anchor, Json value) {
    if (anchor != 0) fail(mark, "anchors are not accepted");
    if (!is_map_ || !error_.ok()) return;
    if (depth_ == 1) {
      entries_.back().value = std::move(value);
      has_key_ = false;
    } else if (depth_ == 2 && entries_.back().value.is_array()) {
      entries_.back().value.push_back(std::move(value));
    }
  }

  static Json plain(const std::string& text) {
    if (text == "true") return true;
    if (text == "false") return false;
    if (text == "null" || text == "~" || text.empty()) return {};
    if (const Result<std::int64_t> whole = parse_integer("", text, {INT64_MIN}); whole.ok()) return *whole;
    if (const Result<double> number = parse_number("", text); number.ok()) return *number;
    return text;
  }

  std::vector<ConfigEntry> entries_;
  Status error_;
  int documents_ = 0;
  int depth_ = 0;
  bool is_map_ = false;
  bool is_empty_ = false;
  bool has_key_ = false;
};

}  // namespace

Result<std::vector<ConfigEntry>> read_yaml(const std::string& text, const std::string& path) {
  try {
    // Appends a document's end mark, which is an error inside quotes. Without the mark, the library would accept
    // unclosed quotes.
    std::istringstream stream(text + "\n...\n");
    YAML::Parser parser(stream);
    Reader reader;
    while (parser.HandleNextDocument(reader)) {
    }
    return std::move(reader).finish(path);
  } catch (const YAML::Exception& error) {
    const auto last = std::max<std::ptrdiff_t>(std::count(text.begin(), text.end(), '\n'), 1);
    return invalid_argument(
        fmt::format("{}:{}: {}", path, std::clamp<std::ptrdiff_t>(error.mark.line + 1, 1, last), error.msg));
  } catch (const std::exception& error) {
    return invalid_argument(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace tessera
