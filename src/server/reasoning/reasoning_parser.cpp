#include "tessera/server/reasoning/reasoning_parser.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tessera/server/reasoning/harmony_reasoning.h"
#include "tessera/server/reasoning/tagged_reasoning.h"

namespace tessera {
namespace {

constexpr std::string_view kAnalysisHeader = "<|channel|>analysis<|message|>";
constexpr const ReasoningTags* kAllTags[] = {&kThinkTags, &kMistralTags};

// Treats all text as content.
class NoReasoning final : public ReasoningFormat {
 public:
  ReasoningText push(std::string_view text) override { return {.content = std::string(text)}; }
  ReasoningText finish() override { return {}; }
  bool in_reasoning() const override { return false; }
};

using MadeReasoning = std::unique_ptr<ReasoningFormat>;

MadeReasoning think(bool opened) { return std::make_unique<TaggedReasoning>(kThinkTags, opened); }
MadeReasoning think_at_once(bool /*opened*/) { return std::make_unique<TaggedReasoning>(kThinkTags, /*inside=*/true); }
MadeReasoning mistral_reasoning(bool opened) { return std::make_unique<TaggedReasoning>(kMistralTags, opened); }
MadeReasoning harmony_reasoning(bool opened) { return std::make_unique<HarmonyReasoning>(opened); }
MadeReasoning none(bool /*opened*/) { return std::make_unique<NoReasoning>(); }

// How reasoning is marked in a text.
struct ReasoningForm {
  MadeReasoning (*make)(bool opened);
  ReasoningTags tags{};             // the marks around a piece of reasoning; empty if there are none
  bool begins_inside = false;       // a text begins inside the reasoning, whatever the prompt says
  bool repeats = false;             // a text may have several pieces of reasoning
  bool has_special_tokens = false;  // the marks are special tokens
};

constexpr ReasoningForm kThink{.make = think, .tags = kThinkTags};
constexpr ReasoningForm kThinkAtOnce{.make = think_at_once, .tags = kThinkTags, .begins_inside = true};
constexpr ReasoningForm kMistral{.make = mistral_reasoning, .tags = kMistralTags, .has_special_tokens = true};
constexpr ReasoningForm kHarmony{.make = harmony_reasoning,
                                 .tags = {.opening = kAnalysisHeader, .closing = "<|end|>"},
                                 .repeats = true,
                                 .has_special_tokens = true};
constexpr ReasoningForm kNone{.make = none};

struct NamedReasoning {
  std::string_view name;
  const ReasoningForm& form;
};

constexpr NamedReasoning kReasoningFormats[] = {
    {"deepseek-r1", kThinkAtOnce},
    {"deepseek_r1", kThinkAtOnce},
    {"deepseek-v3", kThink},
    {"deepseek_v3", kThink},
    {"glm45", kThink},
    {"glm47", kThink},
    {"gpt-oss", kHarmony},
    {"openai_gptoss", kHarmony},
    {"mistral", kMistral},
    {"qwen3", kThink},
    {"qwen3-thinking", kThinkAtOnce},
    {"none", kNone},
};

const NamedReasoning* find_reasoning(std::string_view name) {
  const auto found = std::ranges::find(kReasoningFormats, name, &NamedReasoning::name);
  return found == std::end(kReasoningFormats) ? nullptr : found;
}

}  // namespace

Result<ReasoningParser> ReasoningParser::create(std::string_view name, bool opened) {
  if (const NamedReasoning* format = find_reasoning(name); format != nullptr)
    return ReasoningParser(format->form.make(opened));
  std::string message = "reasoning parser \"" + std::string(name) + "\"; accepted: ";
  for (const NamedReasoning& format : kReasoningFormats) {
    if (!message.ends_with(' ')) message += ", ";
    message += format.name;
  }
  return invalid_argument(std::move(message));
}

std::vector<std::string_view> reasoning_parser_names() {
  std::vector<std::string_view> names;
  for (const NamedReasoning& format : kReasoningFormats) names.push_back(format.name);
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

ReasoningMarks reasoning_marks(std::string_view name) {
  const NamedReasoning* format = find_reasoning(name);
  if (format == nullptr) return {};
  const ReasoningTags& tags = format->form.tags;
  return {.opening = std::string(tags.opening), .closing = std::string(tags.closing)};
}

bool begins_in_reasoning(std::string_view name) {
  const NamedReasoning* format = find_reasoning(name);
  return format != nullptr && format->form.begins_inside;
}

bool repeats_reasoning(std::string_view name) {
  const NamedReasoning* format = find_reasoning(name);
  return format != nullptr && format->form.repeats;
}

bool reads_special_tokens(std::string_view name) {
  const NamedReasoning* format = find_reasoning(name);
  return format != nullptr && format->form.has_special_tokens;
}

bool opens_reasoning(std::string_view prompt) {
  const std::string_view shown = prompt.substr(0, prompt.find_last_not_of(" \n") + 1);
  return shown.ends_with(kAnalysisHeader) ||
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
