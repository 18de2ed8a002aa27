// What requests are checked against: the model's name, tokenizer, templates and limits. Immutable; any thread reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/engine.h"
#include "tessera/engine/grammar/grammar.h"
#include "tessera/engine/request.h"
#include "tessera/model/config/embedding_config.h"
#include "tessera/model/config/generation_config.h"
#include "tessera/server/api_result.h"
#include "tessera/server/images/image_input.h"
#include "tessera/server/server_options.h"
#include "tessera/text/chat_format.h"
#include "tessera/text/chat_template.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

struct ServedModel {
  std::string name;                      // that answers have
  std::vector<std::string> aliases{};    // further names that requests may call it by
  std::string path;                      // as --model-path gave it
  std::int64_t created = 0;              // Unix time
  std::string fingerprint{};             // of build, model and options; "": none is told
  const Tokenizer* tokenizer = nullptr;  // borrowed; null: requests give ids
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;
  std::int64_t hidden_size = 0;
  std::optional<EmbeddingConfig> embedding{};  // how it makes embeddings; none: it makes none
  std::int64_t num_labels = 0;                 // of a classifier; 0: none
  std::optional<ImageInput> images{};          // none: it reads no images
  std::shared_ptr<MemoryBudget> memory{};      // what tokenising is charged to; null: nothing
  GenerationConfig generation{};               // defaults of what a request leaves out
  std::optional<ChatTemplate> chat{};
  std::optional<ChatTemplate> tool_chat{};  // for requests with tools, where the model has one of its own
  bool joins_pairs_by_template = false;     // --chat-template was given: it joins queries and documents too
  bool knows_developer = false;             // whether the template has the role "developer"
  std::string bos_token{};
  std::string eos_token{};
  std::string tool_call_parser{};  // "generic": server/tools/generic_tools.h; "": tools are refused
  std::string reasoning_parser{};  // "": none
  // Of these names, where they are those of formats from outside.
  std::shared_ptr<const ChatFormat> call_format{};
  std::shared_ptr<const ChatFormat> reasoning_format{};
  bool allow_unknown_fields = false;            // in requests: ignored
  bool requires_name = false;                   // of requests by OpenAI's protocols, which send it
  std::int64_t stream_interval = 1;             // tokens from one event of a stream to the next
  std::string no_chat_reason{};                 // where there is no chat template
  std::unique_ptr<GrammarCompiler> grammars{};  // null: output cannot be constrained
  double grammar_seconds = kMaxCompileSeconds;  // of a thread, for all grammars of one HTTP request

  // What can be told of them before there is an engine: a chat template that is given and cannot be read or parsed,
  // parsers with unknown names, formats from outside with the name of one of the server's own. The errors begin with
  // the flag's name, or the format's.
  static Status check(const ServerOptions& options, const ChatFormats& formats);
  // `engine` outlives it. Errors: a chat template that was given and cannot be read, parsers with unknown names.
  static Result<ServedModel> create(const ServerOptions& options, const Engine& engine);

  // Whether it makes tokens.
  bool generates() const { return !embedding && num_labels == 0; }
  // 400 where it does not make tokens, embeddings, or scores of pairs of texts. They say what is served instead.
  ApiStatus check_generates() const;
  ApiStatus check_embeds() const;
  ApiStatus check_scores_pairs() const;

  // `name` and the aliases.
  std::vector<std::string> names() const;
  // 404 where a request names another model. No name means this one.
  ApiStatus check_name(const Json& body) const;
  // The same of OpenAI's protocols; 400 where there is no name and `requires_name`.
  ApiStatus check_named(const Json& body) const;
  // The same of protocols whose clients need no name: the name that gateways write then, "unknown", means this one too.
  ApiStatus check_routed_name(const Json& body) const;
  // Ids of a text. `param` names the field in errors.
  ApiResult<std::vector<TokenId>> encode(std::string_view text, bool add_special_tokens,
                                         const std::string& param) const;
  // 400 with code context_length_exceeded, as set_length() has it, for what is too long to be counted in tokens: `why`.
  ApiError too_long(const std::string& param, std::string_view why) const;
  // Checks the prompt and sets how many tokens may follow it: `asked`, or else up to `otherwise` of what the context
  // has left. Empty, or with ids that the model does not have: 400. Too long for
  // the context together with what was asked: 400 with code context_length_exceeded.
  ApiStatus set_length(Request& request, std::optional<std::int64_t> asked, std::int64_t otherwise,
                       const std::string& param) const;
};

}  // namespace tessera
