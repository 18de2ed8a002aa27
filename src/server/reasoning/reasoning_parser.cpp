#include "tessera/server/reasoning/reasoning_parser.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tessera/server/reasoning/harmony_reasoning.h"
#include "tessera/server/reasoning/tagged_reasoning.h"

namespace tessera {
namespace {

constexpr const ReasoningTags* kAllTags[] = {&kThinkTags, &kMistralTags};

// Treats all text as content.
class NoReasoning final : public ReasoningFormat {
 public:
  ReasoningText push(std::string_view text) override { return {.content = std::string(text)}; }
  ReasoningText finish() override { return {}; }
  bool in_reasoning() const override { return false; }
};

using Made = std::unique_ptr<ReasoningFormat>;

Made think(bool opened) { return std::make_unique<TaggedReasoning>(kThinkTags, opened); }
Made think_at_once(bool /*opened*/) { return std::make_unique<TaggedReasoning>(kThinkTags, /*inside=*/true); }
Made mistral(bool opened) { return std::make_unique<TaggedReasoning>(kMistralTags, opened); }
Made harmony(bool opened) { return std::make_unique<HarmonyReasoning>(opened); }
Made none(bool /*opened*/) { return std::make_unique<NoReasoning>(); }

struct Named {
  std::string_view name;
  Made (*make)(bool opened);
};

constexpr Named kFormats[] = {
    {"deepseek-r1", think_at_once},
    {"deepseek_r1", think_at_once},
    {"deepseek-v3", think},
    {"deepseek_v3", think},
    {"glm45", think},
    {"glm47", think},
    {"gpt-oss", harmony},
    {"openai_gptoss", harmony},
    {"mistral", mistral},
    {"qwen3", think},
    {"qwen3-thinking", think_at_once},
    {"none", none},
};

const Named* find(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &Named::name);
  return found == std::end(kFormats) ? nullptr : found;
}

}  // namespace

Result<ReasoningParser> ReasoningParser::create(std::string_view name, bool opened) {
  if (const Named* format = find(name); format != nullptr) return ReasoningParser(format->make(opened));
  std::string message = "reasoning parser \"" + std::string(name) + "\"; accepted: ";
  for (const Named& format : kFormats) {
    if (!message.ends_with(' ')) message += ", ";
    message += format.name;
  }
  return invalid_argument(std::move(message));
}

std::vector<std::string_view> reasoning_parser_names() {
  std::vector<std::string_view> names;
  for (const Named& format : kFormats) names.push_back(format.name);
  return names;
}

std::string_view guess_reasoning_parser(std::string_view chat_template) {
  const auto has = [&](std::string_view part) { return chat_template.find(part) != std::string_view::npos; };
  if (has("<|channel|>analysis")) return "gpt-oss";
  if (has(kMistralTags.closing)) return "mistral";
  if (!has(kThinkTags.closing)) return "";
  if (has("[gMASK]")) return "glm45";
  return has("<｜Assistant｜></think>") ? "deepseek-v3" : "qwen3";
}

bool reads_special_tokens(std::string_view name) {
  const Named* format = find(name);
  return format != nullptr && (format->make == harmony || format->make == mistral);
}

bool opens_reasoning(std::string_view prompt) {
  const std::string_view shown = prompt.substr(0, prompt.find_last_not_of(" \n") + 1);
  return shown.ends_with("<|channel|>analysis<|message|>") ||
         std::ranges::any_of(kAllTags, [&](const ReasoningTags* tags) { return shown.ends_with(tags->opening); });
}

bool is_inside_reasoning(std::string_view begun) {
  return std::ranges::any_of(kAllTags, [&](const ReasoningTags* tags) {
    const std::size_t opens = begun.rfind(tags->opening);
    const std::size_t closes = begun.rfind(tags->closing);
    return opens != std::string_view::npos && (closes == std::string_view::npos || closes < opens);
  });
}

bool closes_reasoning(std::string_view begun) {
  const bool closes = std::ranges::any_of(
      kAllTags, [&](const ReasoningTags* tags) { return begun.find(tags->closing) != std::string_view::npos; });
  return closes && !is_inside_reasoning(begun);
}

}  // namespace tessera
