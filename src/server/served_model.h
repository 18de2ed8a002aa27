// The model as requests see it: its name, tokenizer, templates and limits. Its settings never change, and any thread
// may use it.
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
#include "tessera/model/config/config.h"
#include "tessera/model/config/embedding_config.h"
#include "tessera/model/config/generation_config.h"
#include "tessera/server/adapters/served_adapters.h"
#include "tessera/server/api_result.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/images/image_input.h"
#include "tessera/server/request_seeds.h"
#include "tessera/server/server_options.h"
#include "tessera/text/chat/chat_format.h"
#include "tessera/text/chat/chat_template.h"
#include "tessera/text/encoded_spans.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

struct ServedModel {
  std::string name;                    // the name in answers
  std::vector<std::string> aliases{};  // further names that requests may use
  std::string path;                    // the value of --model-path
  std::int64_t created = 0;            // Unix time
  std::string architecture{};          // for example "Qwen3ForCausalLM"
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;         // bytes of the weights on the first device
  std::string weight_type{};             // "bfloat16", or a quantisation such as "fp8"
  std::string fingerprint{};             // hash of build, model and options; "": answers have none
  const Tokenizer* tokenizer = nullptr;  // borrowed; null: requests must give ids
  // Keeps the tokenizer's earlier results, so that a conversation's old messages are not encoded again.
  std::shared_ptr<EncodedSpans> spans{};
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;
  std::int64_t hidden_size = 0;
  std::optional<EmbeddingConfig> embedding{};  // unset: the model makes no embeddings
  std::int64_t num_labels = 0;                 // number of labels of a classifier; 0: no classifier
  std::vector<std::string> label_names{};      // one for each label
  LabelScale label_scale = LabelScale::kExclusive;
  std::optional<ImageInput> images{};      // unset: the model reads no images
  std::shared_ptr<MemoryBudget> memory{};  // the budget to which tokenising is charged; null: none
  GenerationConfig generation{};           // defaults for fields that a request leaves out
  // The seeds of requests that name none.
  std::shared_ptr<RequestSeeds> seeds = std::make_shared<RequestSeeds>(0);
  std::optional<ChatTemplate> chat{};
  std::optional<ChatTemplate> tool_chat{};  // the template for requests with tools, if the model has a separate one
  bool joins_pairs_by_template = false;     // --chat-template was given; the template also joins queries and documents
  std::string pair_form{};                  // the model's own text around "{query}" and "{document}"; "": it has none
  bool knows_developer = false;             // the template has the role "developer"
  // The token with which the template begins every message. Set only for models with recurrent states.
  std::optional<TokenId> message_start{};
  std::string bos_token{};
  std::string eos_token{};
  std::string tool_call_parser{};  // "generic": see server/tools/generic_tools.h; "": tools are refused
  std::string reasoning_parser{};  // "": no parser
  // The plugin formats that the two names above select. Each is null if its name belongs to a built-in parser.
  std::shared_ptr<const ChatFormat> call_format{};
  std::shared_ptr<const ChatFormat> reasoning_format{};
  // The ids of the mark that ends the parser's reasoning. If there are none, reasoning cannot be limited.
  std::vector<TokenId> reasoning_end{};
  bool allow_unknown_fields = false;            // unknown fields of requests are ignored
  bool requires_name = false;                   // requests of OpenAI's protocols must name a model
  std::int64_t stream_interval = 1;             // tokens between two events of a stream
  KvEventsOptions kv_events{};                  // shown to gateways by /server_info
  std::string no_chat_reason{};                 // why the model has no chat template
  std::unique_ptr<GrammarCompiler> grammars{};  // null: output cannot be constrained
  std::shared_ptr<ServedAdapters> adapters{};   // null: no low-rank adapters are served
  // The CPU seconds that a thread may spend on all grammars of one HTTP request.
  double grammar_seconds = kMaxCompileSeconds;

  // Checks what can be checked before there is an engine. Errors: a given chat template that cannot be read or parsed,
  // an unknown parser name, and a plugin format that has the name of a built-in format. An error begins with the name
  // of the flag or of the format.
  static Status check(const ServerOptions& options, const ChatFormats& formats);
  // `engine` outlives the result. Errors: those of check(), and an adapter that has the model's own name.
  static Result<ServedModel> create(const ServerOptions& options, const Engine& engine);

  // Returns the number of logits in a row: one for each label of a classifier, or one for each token of the vocabulary.
  std::int64_t num_logits() const { return num_labels > 0 ? num_labels : vocab_size; }
  // Returns whether the model generates tokens.
  bool generates() const { return !embedding && num_labels == 0; }
  // Each of these functions checks one ability of the model: to generate tokens, to make embeddings, to classify, or to
  // score pairs of texts. If the model lacks the ability, the function returns a 400 that says what the model serves
  // instead.
  ApiStatus check_generates() const;
  ApiStatus check_embeds() const;
  ApiStatus check_classifies() const;
  ApiStatus check_scores_pairs() const;

  // Returns `name` and the aliases.
  std::vector<std::string> names() const;
  // Returns a 404 if a request names another model. A request without a name means this model.
  ApiStatus check_name(const Json& body) const;
  // Checks the name in OpenAI's protocols. Does what check_name() does, and also returns a 400 for a missing name if
  // `requires_name` is set.
  ApiStatus check_named(const Json& body) const;
  // Checks the name in protocols whose clients need not give a name. Does what check_name() does, but also accepts
  // "unknown", because gateways write this if their client gave no name.
  ApiStatus check_routed_name(const Json& body) const;
  // `asked` is the model name in a request. Returns the adapter that this name selects, or "" if it selects none. A
  // name that selects an adapter has the form "adapter" or "model:adapter".
  std::string adapter_of(std::string_view asked) const;
  // Returns the adapter that the field "model" names. If the field names no adapter, checks the model's name by
  // `check_model`, and returns "" or that function's error.
  ApiResult<std::string> named_adapter(const Json& body,
                                       ApiStatus (ServedModel::*check_model)(const Json& body) const) const;
  // Returns the adapter that the field "lora_path" names. Without this field, returns `named`. Errors: 404 for an
  // adapter that is not loaded; 400 if `named` is another adapter, or if no adapters are served.
  ApiResult<std::string> adapter_by_path(const ApiFields& fields, std::string named) const;
  // Returns the ids of a text. `param` names the field in errors.
  ApiResult<std::vector<TokenId>> encode(std::string_view text, bool add_special_tokens,
                                         const std::string& param) const;
  // Returns a 400 with code context_length_exceeded, like set_length(), for a text that is so long that its tokens
  // cannot be counted. `why` is the reason in the message.
  ApiError too_long(const std::string& param, std::string_view why) const;
  // Checks the prompt and sets how many tokens may follow the prompt: `asked` or, if `asked` is unset, the smaller of
  // `otherwise` and the room left in the context. Errors: 400 if the prompt is empty or has ids outside the vocabulary;
  // 400 with code context_length_exceeded if the prompt and the asked tokens do not fit into the context.
  ApiStatus set_length(Request& request, std::optional<std::int64_t> asked, std::int64_t otherwise,
                       const std::string& param) const;
};

}  // namespace tessera
