#include "tessera/options/protocol_flags.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/schema/compile.h"
#include "tessera/options/values.h"
#include "tessera/server/events/kv_events_options.h"
#include "tessera/server/reasoning/reasoning_parser.h"
#include "tessera/server/tools/tool_call_parser.h"

namespace tessera {
namespace {

// Returns a function that takes a parser's name. finish_protocol_flags() checks the name later, when plugins have added
// their formats.
CommandFlags::Take name_of_parser(std::string& to) {
  return [&to](const std::string& flag, const std::string& text) -> Status {
    if (text.empty()) return invalid_argument(flag + ": the value is empty");
    to = text;
    return ok_status();
  };
}

// Checks a parser's name. The name must be one of `names`, one of the names that plugins have added (`outside`),
// "none", or "" for a flag that was not given.
Status check_parser(std::string_view flag, const std::string& given, std::vector<std::string_view> names,
                    const std::vector<std::string_view>& outside) {
  if (given.empty()) return ok_status();
  names.insert(names.end(), outside.begin(), outside.end());
  if (std::find(names.begin(), names.end(), "none") == names.end()) names.emplace_back("none");
  return parse_choice(flag, given, names).status();
}

}  // namespace

void add_protocol_flags(CommandFlags& add, ServerOptions& server, EngineOptions& engine, ProtocolFlags& flags) {
  add.values("--served-model-name", "NAME",
             "what clients call the model (its path); of several, the first is in answers",
             [&server](const std::string& flag, const std::string& text) {
               if (text.empty()) return invalid_argument(flag + ": the value is empty");
               if (server.served_model_name.empty()) {
                 server.served_model_name = text;
               } else {
                 server.served_aliases.push_back(text);
               }
               return ok_status();
             });
  add.text("--chat-template", "FILE", "instead of the model's own; a file or the template itself",
           server.chat_template);
  add.value("--tool-call-parser", "hermes|llama3|mistral|deepseekv3|qwen3_coder|glm45|gpt-oss|generic|none",
            "how calls are written (as the chat template has it; else generic)",
            name_of_parser(server.tool_call_parser));
  add.value("--reasoning-parser", "qwen3|deepseek-r1|deepseek-v3|glm45|gpt-oss|mistral|none",
            "how reasoning is marked (as the chat template has it)", name_of_parser(server.reasoning_parser));
  add.text("--lora-folder", "FOLDER", "folder from which requests may load adapters (any)", server.adapter_folder);
  add.flag("--allow-unknown-fields", "in requests: ignored, instead of refused", server.allow_unknown_fields);
  add.value(
      "--constrained-json-whitespace-pattern", "REGEX",
      "blanks between the tokens of constrained JSON, [\\n\\t ]* is all (none: compact)",
      [&server](const std::string& flag, const std::string& text) -> Status {
        TRY(schema::blank_ebnf(text).with_context(flag));
        server.json_whitespace = text;
        return ok_status();
      },
      server.json_whitespace);
  add.integer("--max-queued-requests", "that wait; further ones are refused with 429 (any number)", {},
              engine.max_queued_requests);
  add.integer("--max-images-per-prompt", "of models that read images (16)", {1, 1024}, server.max_images);
  add.flag("--allow-image-urls", "fetch images that requests name by http(s) URLs, from public addresses alone",
           server.allow_image_urls);
  add.value("--kv-events-config", "JSON",
            "publishes which blocks enter and leave the prefix cache, by ZeroMQ, as vLLM and SGLang do",
            [&server](const std::string& flag, const std::string& text) -> Status {
              server.kv_events = TRY(parse_kv_events_config(text).with_context(flag));
              return ok_status();
            });
  const std::string group = add.group();
  add.group("");
  add.flag("--constrained-json-disable-any-whitespace", "accepted: JSON is compact unless a pattern is given",
           flags.compact_json);
  add.flag("--enable-auto-tool-choice", "accepted: requests with tools choose by themselves", flags.auto_tool_choice);
  add.flag("--enable-multimodal", "accepted: images are read where the model reads them", flags.enable_multimodal);
  add.group(group);
}

Status finish_protocol_flags(const ProtocolFlags& flags, const EngineOptions& engine, ServerOptions& server) {
  const ChatFormats& formats = engine.registry->chat_formats;
  TRY(check_parser("--tool-call-parser", server.tool_call_parser, tool_call_parser_names(),
                   formats.names(ChatFormat::Part::kCalls)));
  TRY(check_parser("--reasoning-parser", server.reasoning_parser, reasoning_parser_names(),
                   formats.names(ChatFormat::Part::kReasoning)));
  if (server.served_model_name.empty()) server.served_model_name = engine.model_path;
  if (server.kv_events.enabled && engine.disable_radix_cache)
    return invalid_argument(
        "--kv-events-config: there are no events without a prefix cache; accepted: leave out --disable-radix-cache or "
        "the events");
  if (!flags.auto_tool_choice)
    return unimplemented(
        "--enable-auto-tool-choice: \"false\" is not supported yet; --tool-call-parser none refuses tools");
  if (!flags.compact_json || server.json_whitespace.empty()) return ok_status();
  return invalid_argument(
      "--constrained-json-disable-any-whitespace and --constrained-json-whitespace-pattern ask for opposites; "
      "accepted: one of them");
}

}  // namespace tessera
