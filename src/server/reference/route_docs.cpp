#include "tessera/server/reference/route_docs.h"

#include "tessera/server/fields/request_fields.h"

namespace tessera {
namespace {

using namespace request_object;  // NOLINT(google-build-using-namespace): the rows name its constants

constexpr std::string_view kOrEvents = "application/json text/event-stream";
constexpr std::string_view kOrLines = "application/json application/x-ndjson";
constexpr std::string_view kOnlyJson = "application/json";
constexpr std::string_view kPlainText = "text/plain";

constexpr RouteDoc kRouteDocs[] = {
    {"POST", "/v1/chat/completions", "/v1/chat/completions", "OpenAI", "Answers a chat.", kOrEvents, kChat},
    {"POST", "/v1/completions", "/v1/completions", "OpenAI", "Continues a prompt.", kOrEvents, kCompletions},
    {"POST", "/v1/responses", "/v1/responses", "OpenAI", "Makes a response, and stores it unless asked not to.",
     kOrEvents, kResponses},
    {"POST", "/responses", "/responses", "OpenAI", "Like /v1/responses.", kOrEvents, kResponses},
    {"POST", "/v1/responses/input_tokens", "/v1/responses/input_tokens", "OpenAI",
     "Counts the tokens of a response's input.", kOnlyJson, kResponses},
    {"POST", "/responses/input_tokens", "/responses/input_tokens", "OpenAI", "Like /v1/responses/input_tokens.",
     kOnlyJson, kResponses},
    {"POST", "/v1/responses/compact", "/v1/responses/compact", "OpenAI",
     "Summarises a conversation, so that the client can go on without it.", kOnlyJson, kResponses},
    {"POST", "/responses/compact", "/responses/compact", "OpenAI", "Like /v1/responses/compact.", kOnlyJson,
     kResponses},
    {"GET", "/v1/responses/*", "/v1/responses/{response_id}", "OpenAI",
     "Returns a stored response, or the events of one that runs in the background.", kOrEvents, 0,
     "stream starting_after"},
    {"GET", "/responses/*", "/responses/{response_id}", "OpenAI", "Like /v1/responses/{response_id}.", kOrEvents, 0,
     "stream starting_after"},
    {"GET", "/v1/responses/*", "/v1/responses/{response_id}/input_items", "OpenAI",
     "Lists the input of a stored response.", kOnlyJson, 0, "limit order after"},
    {"GET", "/responses/*", "/responses/{response_id}/input_items", "OpenAI",
     "Like /v1/responses/{response_id}/input_items.", kOnlyJson, 0, "limit order after"},
    {"DELETE", "/v1/responses/*", "/v1/responses/{response_id}", "OpenAI", "Deletes a stored response."},
    {"DELETE", "/responses/*", "/responses/{response_id}", "OpenAI", "Like /v1/responses/{response_id}."},
    {"POST", "/v1/responses/*", "/v1/responses/{response_id}/cancel", "OpenAI",
     "Cancels a response that runs in the background."},
    {"POST", "/responses/*", "/responses/{response_id}/cancel", "OpenAI", "Like /v1/responses/{response_id}/cancel."},
    {"POST", "/v1/embeddings", "/v1/embeddings", "OpenAI", "Computes the embeddings of texts.", kOnlyJson, kEmbeddings},
    {"POST", "/v1/files", "/v1/files", "OpenAI", "Keeps a file for batches."},
    {"GET", "/v1/files", "/v1/files", "OpenAI", "Lists the files.", kOnlyJson, 0, "purpose limit order after"},
    {"GET", "/v1/files/*", "/v1/files/{file_id}", "OpenAI", "Describes a file."},
    {"GET", "/v1/files/*", "/v1/files/{file_id}/content", "OpenAI", "Returns the content of a file.",
     "application/octet-stream"},
    {"DELETE", "/v1/files/*", "/v1/files/{file_id}", "OpenAI", "Deletes a file."},
    {"POST", "/v1/batches", "/v1/batches", "OpenAI", "Begins a batch: answers the requests of a file within a day.",
     kOnlyJson, kBatches},
    {"GET", "/v1/batches", "/v1/batches", "OpenAI", "Lists the batches.", kOnlyJson, 0, "limit order after"},
    {"GET", "/v1/batches/*", "/v1/batches/{batch_id}", "OpenAI", "Describes a batch and how far it is."},
    {"POST", "/v1/batches/*", "/v1/batches/{batch_id}/cancel", "OpenAI", "Ends a batch early."},
    {"GET", "/v1/models", "/v1/models", "OpenAI", "Lists the names of the model.", kOnlyJson, 0, "client_version"},
    {"GET", "/v1/models/*", "/v1/models/{model}", "OpenAI", "Describes the model of this name."},

    {"POST", "/v1/messages", "/v1/messages", "Anthropic", "Answers a conversation.", kOrEvents, kMessages},
    {"POST", "/v1/messages/count_tokens", "/v1/messages/count_tokens", "Anthropic",
     "Counts the tokens of a conversation.", kOnlyJson, kCountTokens},

    {"POST", "/api/chat", "/api/chat", "Ollama", "Answers a chat.", kOrLines, kOllamaChat},
    {"POST", "/api/generate", "/api/generate", "Ollama", "Continues a prompt.", kOrLines, kOllamaGenerate},
    {"POST", "/api/embed", "/api/embed", "Ollama", "Computes the embeddings of texts.", kOnlyJson, kOllamaEmbed},
    {"POST", "/api/embeddings", "/api/embeddings", "Ollama", "Computes the embedding of one text.", kOnlyJson,
     kOllamaEmbeddings},
    {"POST", "/api/show", "/api/show", "Ollama", "Describes the model.", kOnlyJson, kOllamaShow},
    {"GET", "/api/tags", "/api/tags", "Ollama", "Lists the names of the model."},
    {"GET", "/api/ps", "/api/ps", "Ollama", "Lists the models in memory."},
    {"GET", "/api/version", "/api/version", "Ollama", "Returns the version of the interface."},

    {"POST", "/generate", "/generate", "Generation and texts", "Continues one prompt or several, as SGLang does.",
     kOrEvents, kGenerate},
    {"POST", "/v1/rerank", "/v1/rerank", "Generation and texts", "Orders documents by their relevance to a query.",
     kOnlyJson, kRerank},
    {"POST", "/rerank", "/rerank", "Generation and texts", "Like /v1/rerank.", kOnlyJson, kRerank},
    {"POST", "/v2/rerank", "/v2/rerank", "Generation and texts", "Like /v1/rerank.", kOnlyJson, kRerank},
    {"POST", "/v1/classify", "/v1/classify", "Generation and texts", "Returns a classifier's scores of texts' labels.",
     kOnlyJson, kClassify},
    {"POST", "/classify", "/classify", "Generation and texts", "Like /v1/classify.", kOnlyJson, kClassify},
    {"POST", "/v1/score", "/v1/score", "Generation and texts",
     "Scores pairs of texts, or the tokens that may follow a prompt.", kOnlyJson, kScore | kLabelScore},
    {"POST", "/score", "/score", "Generation and texts", "Like /v1/score.", kOnlyJson, kScore | kLabelScore},
    {"POST", "/tokenize", "/tokenize", "Generation and texts", "Turns a text into tokens.", kOnlyJson, kTokenize},
    {"POST", "/detokenize", "/detokenize", "Generation and texts", "Turns tokens into a text.", kOnlyJson, kDetokenize},

    {"GET", "/health", "/health", "State", "Tells whether the server takes requests."},
    {"GET", "/ready", "/ready", "State", "Like /health."},
    {"GET", "/ping", "/ping", "State", "Like /health."},
    {"GET", "/live", "/live", "State", "Answers until the process ends."},
    {"GET", "/health_generate", "/health_generate", "State", "Tells whether the model generates, by a short request."},
    {"GET", "/metrics", "/metrics", "State", "Returns the metrics in Prometheus' text format.", kPlainText},
    {"GET", "/v1/loads", "/v1/loads", "State", "Tells how busy each engine is.", "application/json text/plain", 0,
     "include dp_rank format"},
    {"GET", "/get_load", "/get_load", "State", "Tells how busy each engine is, in short."},
    {"GET", "/engine_state", "/engine_state", "State", "Returns what the page at / draws."},
    {"GET", "/model_info", "/model_info", "State", "Describes the model."},
    {"GET", "/get_model_info", "/get_model_info", "State", "Like /model_info."},
    {"GET", "/server_info", "/server_info", "State", "Returns the options and statistics of the engine."},
    {"GET", "/get_server_info", "/get_server_info", "State", "Like /server_info."},
    {"GET", "/version", "/version", "State", "Returns the server's version."},

    {"POST", "/close_session", "/close_session", "State", "Ends the retention of a session's text.", kOnlyJson,
     kCloseSession},

    {"POST", "/flush_cache", "/flush_cache", "Administration", "Forgets cached prefixes that are not in use.",
     kPlainText},
    {"POST", "/abort_request", "/abort_request", "Administration", "Ends running requests.", kOnlyJson, kAbort},

    {"POST", "/v1/load_lora_adapter", "/v1/load_lora_adapter", "Administration", "Loads a low-rank adapter.", kOnlyJson,
     kLoadAdapter},
    {"POST", "/load_lora_adapter", "/load_lora_adapter", "Administration", "Like /v1/load_lora_adapter.", kOnlyJson,
     kLoadAdapter},
    {"POST", "/v1/unload_lora_adapter", "/v1/unload_lora_adapter", "Administration",
     "Unloads a low-rank adapter, and answers when its last request has ended.", kOnlyJson, kUnloadAdapter},
    {"POST", "/unload_lora_adapter", "/unload_lora_adapter", "Administration", "Like /v1/unload_lora_adapter.",
     kOnlyJson, kUnloadAdapter},

    {"GET", "/", "/", "Pages", "Returns a page to chat and to watch the engine; other clients get a line of text.",
     "text/html text/plain"},
    {"GET", "/docs", "/docs", "Pages", "Returns a page that lists these routes.", "text/html"},
    {"GET", "/openapi.json", "/openapi.json", "Pages", "Returns this description."},
};

}  // namespace

std::span<const RouteDoc> route_docs() { return kRouteDocs; }

}  // namespace tessera
