#include "tessera/server/tool_call_parser.h"

#include <utility>

namespace tessera {
namespace {

constexpr std::string_view kHermesBegin = "<tool_call>";
constexpr std::string_view kHermesEnd = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kMistralBegin = "[TOOL_CALLS]";
constexpr std::string_view kDeepseekListBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kDeepseekBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kDeepseekSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kDeepseekEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kDeepseekListEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kFence = "```";
constexpr std::string_view kJsonFence = "```json";
constexpr std::string_view kSpaces = " \n\r\t";
constexpr std::size_t kMaxHeadBytes = 1024;

bool is_space(char c) { return kSpaces.find(c) != std::string_view::npos; }

std::string_view without_spaces_in_front(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

std::string_view word_in_front(std::string_view text) {
  text = without_spaces_in_front(text);
  return text.substr(0, text.find_first_of(kSpaces));
}

// V3 writes function<sep>NAME and a fence of Markdown in front of the arguments, V3.1 NAME<sep>.
std::string deepseek_name(std::string_view head) {
  const std::size_t separator = head.find(kDeepseekSeparator);
  if (separator == std::string_view::npos) return "";
  const std::string_view behind = word_in_front(head.substr(separator + kDeepseekSeparator.size()));
  return std::string(behind.empty() || behind.starts_with(kFence) ? word_in_front(head.substr(0, separator)) : behind);
}

}  // namespace

std::vector<std::string_view> tool_call_parser_names() {
  return {"hermes", "qwen25", "qwen", "llama3", "mistral", "deepseekv3", "deepseekv31", "generic"};
}

std::string_view guess_tool_call_parser(std::string_view chat_template) {
  const auto has = [&](std::string_view part) { return chat_template.find(part) != std::string_view::npos; };
  // Calls written as tags inside tags.
  if (has("<function=") || has("<arg_key>")) return "";
  if (has(kHermesBegin)) return "hermes";
  if (has(kPythonTag) || has(R"({"name": function name, "parameters":)")) return "llama3";
  if (has(kMistralBegin)) return "mistral";
  if (has(kDeepseekBegin)) return "deepseekv3";
  return "";
}

Result<ToolCallParser> ToolCallParser::create(std::string_view name, const Json& tools, NewId new_id) {
  if (name == "hermes" || name == "qwen25" || name == "qwen") {
    return ToolCallParser(Format::kHermes, tools, std::move(new_id));
  }
  if (name == "llama3") return ToolCallParser(Format::kLlama3, tools, std::move(new_id));
  if (name == "mistral") return ToolCallParser(Format::kMistral, tools, std::move(new_id));
  if (name == "deepseekv3" || name == "deepseekv31") {
    return ToolCallParser(Format::kDeepseek, tools, std::move(new_id));
  }
  if (name == "generic") return ToolCallParser(Format::kGeneric, tools, std::move(new_id));
  std::string message = "tool call parser \"" + std::string(name) + "\"; accepted: ";
  for (const std::string_view known : tool_call_parser_names()) {
    if (!message.ends_with(' ')) message += ", ";
    message += known;
  }
  return invalid_argument(std::move(message));
}

std::vector<std::string_view> ToolCallParser::markers(Format format) {
  switch (format) {
    case Format::kHermes: return {kHermesBegin};
    case Format::kLlama3: return {kPythonTag};
    case Format::kMistral: return {kMistralBegin};
    case Format::kGeneric: return {kHermesBegin, kJsonFence};
    case Format::kDeepseek: break;
  }
  return {kDeepseekListBegin, kDeepseekBegin, kDeepseekListEnd};
}

ToolCallParser::ToolCallParser(Format format, const Json& tools, NewId new_id)
    : format_(format), any_name_(!tools.is_array()), new_id_(std::move(new_id)), finder_(markers(format)) {
  if (any_name_) return;
  for (const Json& tool : tools.as_array()) {
    const Json* function = tool.find("function");
    const Json* name = function == nullptr ? nullptr : function->find("name");
    if (name != nullptr && name->is_string()) names_.insert(name->as_string());
  }
}

ToolText ToolCallParser::push(std::string_view text) {
  for (const char c : text) take(c);
  return std::exchange(out_, {});
}

ToolText ToolCallParser::finish() {
  if (phase_ == Phase::kContent) add_content(finder_.take_held());
  if (phase_ == Phase::kHead || phase_ == Phase::kObject) refuse({});
  if (calls_ == 0) out_.content += std::exchange(spaces_, {});
  return std::exchange(out_, {});
}

void ToolCallParser::take(char c) {
  switch (phase_) {
    case Phase::kContent: take_content(c); break;
    case Phase::kHead: take_head(c); break;
    case Phase::kObject: take_object(c); break;
    case Phase::kTail:
      tail_ += c;
      if (take_tail(c)) break;
      phase_ = Phase::kContent;
      for (const char held : std::exchange(tail_, {})) take(held);
      break;
  }
}

void ToolCallParser::take_content(char c) {
  std::string passed;
  const auto marker = finder_.push(c, passed);
  const bool at_beginning = !has_content_ && calls_ == 0;
  const bool bare = format_ == Format::kLlama3 || format_ == Format::kGeneric;
  if (bare && passed == "{" && at_beginning) {
    end_ = {};
    return begin_object({});
  }
  if (format_ == Format::kMistral && passed.starts_with('[') && at_beginning) {
    raw_ = '[';
    in_list_ = true;
    phase_ = Phase::kHead;
    // The finder took the bracket for the beginning of the mark.
    for (const char held : passed.substr(1) + finder_.take_held()) take(held);
    return;
  }
  add_content(passed);
  if (marker) begin_calls(*marker);
}

void ToolCallParser::begin_calls(std::size_t marker) {
  const std::string_view mark = markers(format_)[marker];
  if (mark == kDeepseekListEnd) {
    if (calls_ == 0) add_content(mark);
    return;
  }
  if (mark == kJsonFence && (has_content_ || calls_ > 0)) return add_content(mark);
  end_ = mark == kJsonFence ? kFence : kHermesEnd;
  raw_ = mark;
  in_list_ = false;
  phase_ = Phase::kHead;
}

void ToolCallParser::take_head(char c) {
  if (format_ == Format::kDeepseek) return take_name(c);
  if (format_ == Format::kMistral && !in_list_ && c == '[') {
    in_list_ = true;
  } else if (c == '{' && (format_ != Format::kMistral || in_list_)) {
    return begin_object({});
  } else if (!is_space(c)) {
    return refuse(c);
  }
  raw_ += c;
}

// kDeepseek: everything up to the arguments' brace.
void ToolCallParser::take_name(char c) {
  std::string_view head = raw_;
  if (head.starts_with(kDeepseekListBegin)) head.remove_prefix(kDeepseekListBegin.size());
  head = without_spaces_in_front(head);
  const bool begun = head.starts_with(kDeepseekBegin);
  if (begun && c == '{') {
    std::string name = deepseek_name(head.substr(kDeepseekBegin.size()));
    return name.empty() ? refuse(c) : begin_object(ToolCallReader(std::move(name)));
  }
  const std::string more = std::string(head) + c;
  const bool good = begun ? raw_.size() < kMaxHeadBytes : is_space(c) || kDeepseekBegin.starts_with(more);
  if (!good) return refuse(c);
  raw_ += c;
}

void ToolCallParser::begin_object(ToolCallReader reader) {
  reader_ = std::move(reader);
  counts_ = false;
  phase_ = Phase::kObject;
  take_object('{');
}

void ToolCallParser::take_object(char c) {
  const ToolCallReader::State state = reader_.push(c);
  const bool unknown = !any_name_ && !reader_.name().empty() && !names_.contains(reader_.name());
  if (state == ToolCallReader::State::kFailed || unknown) return refuse(c);
  if (!counts_) raw_ += c;
  if (reader_.is_call()) hand_on();
  if (state == ToolCallReader::State::kDone) {
    phase_ = Phase::kTail;
    tail_.clear();
  }
}

void ToolCallParser::hand_on() {
  if (!counts_) {
    counts_ = true;
    raw_.clear();
    spaces_.clear();
    out_.calls.push_back({.index = calls_++, .id = new_id_(), .name = reader_.name()});
  }
  std::string arguments = reader_.take_arguments();
  if (arguments.empty()) return;
  if (out_.calls.empty() || out_.calls.back().index != calls_ - 1) out_.calls.push_back({.index = calls_ - 1});
  out_.calls.back().arguments += arguments;
}

// False where the text behind the object does not belong to calls.
bool ToolCallParser::take_tail(char c) {
  std::string_view seen = without_spaces_in_front(tail_);
  if (seen.empty()) return true;
  const auto next_call = [&] {
    raw_ = std::exchange(tail_, {});
    phase_ = Phase::kHead;
    return true;
  };
  const auto expect = [&](std::string_view end) {
    if (seen == end) phase_ = Phase::kContent;
    return end.starts_with(seen);
  };
  switch (format_) {
    case Format::kHermes: return expect(kHermesEnd);
    case Format::kGeneric: return !end_.empty() && expect(end_);
    case Format::kLlama3: return c == ';' && next_call();
    case Format::kMistral:
      if (c == ',') return next_call();
      return expect("]");
    case Format::kDeepseek: break;
  }
  if (seen.starts_with(kFence)) seen = without_spaces_in_front(seen.substr(kFence.size()));
  return seen.empty() || kFence.starts_with(seen) || expect(kDeepseekEnd);
}

void ToolCallParser::add_content(std::string_view text) {
  for (const char c : text) {
    if (is_space(c)) {
      spaces_ += c;
      continue;
    }
    has_content_ = true;
    out_.content += std::exchange(spaces_, {});
    out_.content += c;
  }
}

// This is not a call: the held text is content. `next` is the byte that decided it.
void ToolCallParser::refuse(std::optional<char> next) {
  phase_ = Phase::kContent;
  add_content(std::exchange(raw_, {}));
  if (!next) return;
  // A brace in front of which nothing was held would begin the same object again.
  has_content_ = true;
  take(*next);
}

}  // namespace tessera
