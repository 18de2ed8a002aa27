#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/base/hash.h"
#include "tessera/base/log.h"
#include "tessera/engine/plan/model_texts.h"
#include "tessera/server/api_job.h"
#include "tessera/server/openai/branch_tokens.h"
#include "tessera/server/openai/chat_text_style.h"
#include "tessera/server/openai/conversation_prompt.h"
#include "tessera/server/reasoning/reasoning_parser.h"
#include "tessera/server/report/server_info.h"
#include "tessera/server/served_model.h"
#include "tessera/server/tools/generic_tools.h"
#include "tessera/server/tools/tool_call_parser.h"

namespace tessera {
namespace {

// The maximum number of bytes of encoded messages that are kept: enough for about forty conversations of 100 000 tokens
// each.
constexpr std::size_t kSpanBytes = std::size_t{32} << 20;

bool is_template_source(const std::string& given) {
  return given.find("{{") != std::string::npos || given.find("{%") != std::string::npos;
}

// Returns the name of the parser to use. `asked` is the value of the flag `flag`. Returns `guess` if this value is
// empty, "" if it is "none", and otherwise the value itself. `outside` has the names of the plugins' formats.
Result<std::string> choose_parser(const std::string& flag, const std::string& asked, std::string_view guess,
                                  std::vector<std::string_view> names, const std::vector<std::string_view>& outside) {
  for (const std::string_view name : outside) {
    if (name == "none" || std::ranges::find(names, name) != names.end())
      return invalid_argument(
          fmt::format("chat format \"{}\" of a plugin: {} has that name already; give it another", name, flag));
  }
  if (asked.empty()) return std::string(guess);
  if (asked == "none") return std::string();
  names.insert(names.end(), outside.begin(), outside.end());
  if (std::ranges::find(names, asked) != names.end()) return asked;
  return invalid_argument(fmt::format("{} is \"{}\"; accepted: {} or none", flag, asked, fmt::join(names, ", ")));
}

Status choose_parsers(const ServerOptions& options, const ChatFormats& formats, const std::string& source,
                      const std::string& tool_source, ServedModel& model) {
  using Part = ChatFormat::Part;
  std::string_view guess = guess_tool_call_parser(tool_source);
  if (guess.empty()) guess = kGenericToolParser;
  model.tool_call_parser = TRY(choose_parser("--tool-call-parser", options.tool_call_parser, guess,
                                             tool_call_parser_names(), formats.names(Part::kCalls)));
  // A flag may name a parser. If the template shows no tools, it does not show the model the call format that this
  // parser reads. The model would not write calls in this format, so the generic parser is used instead.
  const bool shows_tools = tool_source.find("tools") != std::string::npos;
  if (!model.tool_call_parser.empty() && !shows_tools) model.tool_call_parser = kGenericToolParser;
  model.call_format = formats.find(model.tool_call_parser, Part::kCalls);
  model.reasoning_parser =
      TRY(choose_parser("--reasoning-parser", options.reasoning_parser, guess_reasoning_parser(source),
                        reasoning_parser_names(), formats.names(Part::kReasoning)));
  if (model.reasoning_parser == "none") model.reasoning_parser.clear();
  model.reasoning_format = formats.find(model.reasoning_parser, Part::kReasoning);
  return ok_status();
}

// Parses the given template and returns its source.
Result<std::string> parse_given(const std::string& given, ServedModel& model) {
  std::string source = given;
  if (!is_template_source(given)) source = TRY(read_text_file(given).with_context("--chat-template"));
  model.chat = TRY(ChatTemplate::parse(source, "--chat-template"));
  return source;
}

// Parses the chat template in the model's own files. If it is invalid, only chats are disabled.
void parse_own(const TokenizerConfig& config, ServedModel& model) {
  const std::string* source = config.find_template();
  if (source == nullptr) {
    model.no_chat_reason = "the model has no chat template";
    return;
  }
  Result<ChatTemplate> chat = ChatTemplate::parse(*source);
  if (!chat.ok()) {
    model.no_chat_reason = fmt::format("the model's chat template cannot be used: {}", chat.status().message());
    log_warn("server", "{}", model.no_chat_reason);
    return;
  }
  model.chat = *std::move(chat);
  const std::string* with_tools = config.find_template("tool_use");
  if (with_tools == nullptr) return;
  Result<ChatTemplate> tool_chat = ChatTemplate::parse(*with_tools, "chat template \"tool_use\"");
  if (tool_chat.ok()) {
    model.tool_chat = *std::move(tool_chat);
  } else {
    log_warn("server", "{}", tool_chat.status().message());
  }
}

// Returns a text with placeholders for a query and a document, if the model's files have one, and otherwise "". GGUF
// files of Qwen3-Reranker store this text under the name of a chat template, "rerank", although it is not a Jinja
// template.
std::string read_pair_form(const TokenizerConfig& config) {
  const std::string* form = config.find_template("rerank");
  if (form == nullptr) return "";
  for (const char* placeholder : {"{query}", "{document}"}) {
    if (form->find(placeholder) != std::string::npos) continue;
    log_warn("server", "the model's template \"rerank\" is not used, because it has no {}", placeholder);
    return "";
  }
  // Without this check, a Jinja template with both placeholders in its source would be taken for such a text.
  if (form->find("{{") != std::string::npos || form->find("{%") != std::string::npos) {
    log_warn("server", "the model's template \"rerank\" is not used, because it is written in Jinja");
    return "";
  }
  return *form;
}

Result<std::optional<ImageInput>> read_image_input(const ServerOptions& options, const Engine& engine) {
  std::optional<ImageInput> input = TRY(image_input_of(engine));
  if (!input) return input;
  input->most_images = options.max_images;
  if (options.allow_image_urls) {
    UrlFetchOptions fetching{.most_bytes = input->limits.most_bytes};
    input->fetcher = std::make_shared<const UrlFetcher>(TRY(UrlFetcher::create(std::move(fetching))));
  }
  return input;
}

// Returns the adapters that the engine has loaded; null if the engine cannot serve adapters.
Result<std::shared_ptr<ServedAdapters>> adapters_of(const ServerOptions& options, const Engine& engine,
                                                    const ServedModel& model) {
  if (engine.adapter_layout() == nullptr) return std::shared_ptr<ServedAdapters>();
  std::shared_ptr<ServedAdapters> adapters =
      TRY(ServedAdapters::create(*engine.adapter_layout(), engine.device(), options.adapter_folder));
  const std::vector<std::string> own = model.names();
  for (const AdapterInfo& info : engine.adapters().list()) {
    if (std::ranges::find(own, info.name) != own.end())
      return invalid_argument(
          fmt::format("--lora-paths: {} is the model's own name; accepted is another one", info.name));
    adapters->add(info.name, info.path);
  }
  return adapters;
}

// Returns the fingerprint. Two servers with the same fingerprint give the same answer to a request with a seed, as far
// as floating point allows.
std::string fingerprint_of(const ServedModel& model, const EngineOptions& options, const std::string& source) {
  Hasher hash;
  for (const std::string& part : {std::string(TESSERA_VERSION), model.name, options_json(options), source,
                                  model.tool_call_parser, model.reasoning_parser})
    hash.add(part);
  return "fp_" + hash.finish().hex().substr(0, 12);
}

}  // namespace

Status ServedModel::check(const ServerOptions& options, const ChatFormats& formats) {
  ServedModel model;
  TRY(choose_parsers(options, formats, "", "", model));
  if (!options.chat_template.empty()) TRY(parse_given(options.chat_template, model));
  return ok_status();
}

Result<ServedModel> ServedModel::create(const ServerOptions& options, const Engine& engine) {
  ServedModel model;
  model.path = engine.options().model_path;
  model.name = options.served_model_name.empty() ? model.path : options.served_model_name;
  model.aliases = options.served_aliases;
  model.architecture = engine.config().architecture;
  model.parameters = engine.parameters();
  model.weight_bytes = engine.runner().memory()[MemoryUse::kWeights];
  model.weight_type = engine.options().quantization.empty() ? engine.options().dtype : engine.options().quantization;
  model.stream_interval = options.stream_interval;
  model.kv_events = options.kv_events;
  model.created = unix_time();
  model.allow_unknown_fields = options.allow_unknown_fields;
  model.tokenizer = engine.tokenizer();
  model.spans = std::make_shared<EncodedSpans>(kSpanBytes);
  if (model.tokenizer == nullptr) log_warn("server", "{}", without_tokenizer(model.path));
  model.vocab_size = engine.config().vocab_size;
  model.context_length = engine.max_request_tokens();
  model.hidden_size = engine.config().hidden_size;
  model.embedding = engine.embedding();
  model.num_labels = engine.config().num_labels;
  model.label_names = engine.config().label_names;
  model.label_scale = engine.config().label_scale;
  model.joins_pairs_by_template = !options.chat_template.empty();
  model.generation = engine.generation_config();
  model.seeds = std::make_shared<RequestSeeds>(engine.options().random_seed);
  model.bos_token = engine.tokenizer_config().bos_token;
  model.eos_token = engine.tokenizer_config().eos_token;
  model.images = TRY(read_image_input(options, engine));
  model.adapters = TRY(adapters_of(options, engine, model));
  std::string source;
  std::string tool_source;
  if (options.chat_template.empty()) {
    const TokenizerConfig& config = engine.tokenizer_config();
    parse_own(config, model);
    if (model.num_labels > 0) model.pair_form = read_pair_form(config);
    if (model.chat) source = *config.find_template();
    tool_source = model.tool_chat ? *config.find_template("tool_use") : source;
  } else {
    source = TRY(parse_given(options.chat_template, model));
    tool_source = source;
  }
  if (engine.config().delta_net && model.chat && model.tokenizer != nullptr)
    model.message_start =
        find_message_start(*model.chat, *model.tokenizer, render_options(model, {}, Json::object(), true));
  model.knows_developer = source.find("developer") != std::string::npos;
  TRY(choose_parsers(options, engine.options().registry->chat_formats, source, tool_source, model));
  model.reasoning_end = reasoning_end_of(model);
  model.fingerprint = fingerprint_of(model, engine.options(), source);
  if (model.tokenizer != nullptr && GrammarCompiler::available()) {
    const GrammarOptions grammar_options{.json_whitespace = options.json_whitespace};
    model.grammars =
        TRY(GrammarCompiler::create(*model.tokenizer, model.vocab_size, engine.end_ids(), grammar_options));
  }
  return model;
}

}  // namespace tessera
