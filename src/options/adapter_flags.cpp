#include "tessera/options/adapter_flags.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>

namespace tessera {
namespace {

constexpr int kMostWords = 1024;  // the maximum number of values after one flag

// Reads SGLang's {"lora_name": …, "lora_path": …} or vLLM's {"name": …, "path": …}.
Result<AdapterPath> parse_object(const std::string& flag, const std::string& text) {
  const Json json = TRY(Json::parse(text, flag));
  const auto member = [&](std::string_view ours, std::string_view theirs) -> std::optional<std::string> {
    const Json* value = json.find(ours);
    if (value == nullptr) value = json.find(theirs);
    return value != nullptr && value->is_string() ? std::optional(value->as_string()) : std::nullopt;
  };
  const std::optional<std::string> name = member("lora_name", "name");
  const std::optional<std::string> path = member("lora_path", "path");
  if (!name || !path)
    return invalid_argument(
        fmt::format("{}: {} is not accepted; an object with \"lora_name\" and \"lora_path\" is", flag, text));
  return AdapterPath{.name = *name, .path = *path};
}

// Reads NAME=PATH, a JSON object, or a path without a name. In the last case the path's last folder becomes the name.
Result<AdapterPath> parse_path(const std::string& flag, const std::string& text) {
  if (text.starts_with('{')) return parse_object(flag, text);
  const std::size_t at = text.find('=');
  AdapterPath adapter{.name = text.substr(0, at), .path = at == std::string::npos ? text : text.substr(at + 1)};
  if (at == std::string::npos) adapter.name = std::filesystem::path(text).filename().string();
  if (adapter.name.empty() || adapter.path.empty())
    return invalid_argument(fmt::format("{}: \"{}\" is not accepted; NAME=PATH is", flag, text));
  return adapter;
}

}  // namespace

void add_adapter_flags(CommandFlags& add, EngineOptions& engine) {
  AdapterOptions& adapters = engine.adapters;
  add.flag("--enable-lora", "serve low-rank adapters (LoRA), which requests name", adapters.enabled);
  add.values(
      "--lora-paths,--lora-modules", "NAME=PATH", "adapters to load at the start: folders that PEFT has written",
      [&adapters](const std::string& flag, const std::string& text) -> Status {
        adapters.paths.push_back(TRY(parse_path(flag, text)));
        adapters.enabled = true;
        return ok_status();
      },
      kMostWords);
  add.integer("--max-loras-per-batch,--max-loras", "adapters that one forward may mix: slots on the device (8)",
              {1, kMaxAdapterSlots}, adapters.limits.slots);
  add.integer("--max-lora-rank", "the largest rank of an adapter (16)", {1, kMaxAdapterRank}, adapters.limits.max_rank);
  add.values(
      "--lora-target-modules", "NAME", "modules that adapters may change, like q_proj or lm_head (all-linear)",
      [&adapters](const std::string& flag, const std::string& text) -> Status {
        for (const std::string& name : TRY(parse_names(flag, text)))
          adapters.limits.targets.push_back(name == "all" ? std::string(kAllLinears) : name);
        return ok_status();
      },
      kMostWords);
  add.values(
      "--lora-modules-to-save", "NAME", "lm_head, embed_tokens: modules that adapters may replace whole (none)",
      [&adapters](const std::string& flag, const std::string& text) -> Status {
        for (const std::string& name : TRY(parse_names(flag, text))) adapters.limits.saved.push_back(name);
        return ok_status();
      },
      kMostWords);
}

void warn_about_adapter_flags(const AdapterOptions& adapters, std::vector<std::string>& warnings) {
  if (adapters.enabled) return;
  const AdapterLimits defaults;
  const auto warn = [&](std::string_view flag) {
    warnings.push_back(fmt::format("{} has no effect without --enable-lora or --lora-paths", flag));
  };
  if (adapters.limits.slots != defaults.slots) warn("--max-loras-per-batch");
  if (adapters.limits.max_rank != defaults.max_rank) warn("--max-lora-rank");
  if (!adapters.limits.targets.empty()) warn("--lora-target-modules");
  if (!adapters.limits.saved.empty()) warn("--lora-modules-to-save");
}

}  // namespace tessera
