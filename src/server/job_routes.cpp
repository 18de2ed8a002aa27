#include "tessera/server/job_routes.h"

#include "tessera/server/anthropic/messages_request.h"
#include "tessera/server/ollama/ollama_embed.h"
#include "tessera/server/ollama/ollama_models.h"
#include "tessera/server/ollama/ollama_request.h"
#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/completion_request.h"
#include "tessera/server/openai/generate_request.h"
#include "tessera/server/openai/pooled/classify_request.h"
#include "tessera/server/openai/pooled/embedding_request.h"
#include "tessera/server/openai/pooled/rerank_request.h"
#include "tessera/server/openai/pooled/score_request.h"
#include "tessera/server/openai/text_routes.h"

namespace tessera {
namespace {

constexpr ReadRoute<ApiJob> kJobRoutes[] = {
    {"/v1/chat/completions", prepare_chat},
    {"/v1/completions", prepare_completion},
    {"/generate", prepare_generate},
    {"/v1/messages", prepare_messages},
    {"/v1/embeddings", prepare_embeddings},
    {"/api/chat", prepare_ollama_chat},
    {"/api/generate", prepare_ollama_generate},
    {"/api/embed", prepare_ollama_embed},
    {"/api/embeddings", prepare_ollama_embeddings},
    {"/v1/rerank", prepare_rerank},
    {"/rerank", prepare_rerank},
    {"/v2/rerank", prepare_rerank},
    {"/v1/classify", prepare_classify},
    {"/classify", prepare_classify},
    {"/v1/score", prepare_score},
    {"/score", prepare_score},
};

constexpr ReadRoute<std::string> kBuildRoutes[] = {
    {"/v1/messages/count_tokens", count_tokens_body},
    {"/api/show", ollama_show_body},
    {"/tokenize", tokenize_body},
    {"/detokenize", detokenize_body},
};

}  // namespace

std::span<const ReadRoute<ApiJob>> job_routes() { return kJobRoutes; }
std::span<const ReadRoute<std::string>> build_routes() { return kBuildRoutes; }

}  // namespace tessera
