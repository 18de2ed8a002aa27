// Catches: a pair of texts that is joined differently than the tokenizer says; and a malformed request for embeddings
// or scores whose error does not name the wrong field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "tessera/server/openai/pooled/embedding_request.h"
#include "tessera/server/openai/pooled/rerank_request.h"
#include "tessera/server/openai/pooled/score_request.h"
#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using test::demo_tokenizer;
using test::encode;
using test::test_model;
using ::testing::HasSubstr;
using testing::source_path;

enum class ModelKind { kEmbeds, kClassifies, kGenerates };

ServedModel model_of(ModelKind kind) {
  ServedModel model = test_model();
  if (kind == ModelKind::kEmbeds) model.embedding = EmbeddingConfig();
  if (kind == ModelKind::kClassifies) model.num_labels = 1;
  return model;
}

// A pair is written in the tokenizer's own form for pairs. If the tokenizer has no such form, the two texts are
// concatenated.
TEST(TextPairs, AreJoinedByTheTokenizersOwnForm) {
  Json json = *Json::read_file(source_path("models/demo/tokenizer.json"));
  json.set("post_processor", *Json::parse(R"({"type": "TemplateProcessing",
      "single": [{"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}},
               {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}],
      "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [2046], "tokens": ["<|im_start|>"]},
                         "<|im_end|>": {"id": "<|im_end|>", "ids": [2047], "tokens": ["<|im_end|>"]}}})",
                                          "post_processor"));
  const Tokenizer tokenizer = *Tokenizer::parse(json.dump(), "tokenizer.json");
  ServedModel model = model_of(ModelKind::kClassifies);
  const std::string body = R"({"text_1": "The little", "text_2": " fox"})";
  EXPECT_EQ((*prepare_score(model, body)).requests[0].prompt, encode("The little fox"));
  model.tokenizer = &tokenizer;
  std::vector<TokenId> want = encode("The little");
  want.emplace_back(2047);
  for (const TokenId id : encode(" fox")) want.push_back(id);
  std::vector<TokenId> bare = encode("The little");
  for (const TokenId id : encode(" fox")) bare.push_back(id);
  EXPECT_EQ((*prepare_score(model, R"({"text_1": "The little", "text_2": " fox", "add_special_tokens": false})"))
                .requests[0]
                .prompt,
            bare);
  want.emplace_back(2046);
  EXPECT_EQ((*prepare_score(model, body)).requests[0].prompt, want);
}

// GGUF files of rerankers have a text with two placeholders. Placeholders inside the request's texts are not replaced.
TEST(TextPairs, AreJoinedByTheModelsOwnText) {
  ServedModel model = model_of(ModelKind::kClassifies);
  model.pair_form = "Is it so? {query} {other} {document}{query}!";
  EXPECT_EQ((*prepare_score(model, R"({"text_1": "The {document}", "text_2": "fox {query"})")).requests[0].prompt,
            encode("Is it so? The {document} {other} fox {queryThe {document}!"));
  EXPECT_EQ((*prepare_rerank(model, R"({"query": "a", "documents": ["b", "c"]})")).requests[1].prompt,
            encode("Is it so? a {other} ca!"));
}

using Prepare = ApiResult<ApiJob> (*)(const ServedModel& model, std::string_view body);

TEST(BadPooledRequests, AreRefusedNamingTheField) {
  struct Case {
    Prepare prepare;
    ModelKind kind;
    const char* body;
    const char* param;
    const char* message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {prepare_embeddings, ModelKind::kEmbeds, "{}", "input", "accepted"},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": ""})", "input", "no tokens"},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": []})", "input", "accepted"},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": [[]]})", "input", "no tokens"},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": ["a", ""]})", "input", "no tokens"},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": [5, 2048]})", "input", "2047"},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": [-1]})", "input", "2047"},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": {"a": 1}})", "input", "accepted"},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": "a", "encoding_format": "hex"})", "encoding_format",
            "\"float\" or \"base64\""},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": "a", "dimensions": 5})", "dimensions", "[1, 4]"},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": "a", "dimensions": 0})", "dimensions", "[1, 4]"},
           {prepare_embeddings, ModelKind::kEmbeds, R"({"input": "a", "truncate_prompt_tokens": 0})",
            "truncate_prompt_tokens", "1 to 256"},
           {prepare_embeddings, ModelKind::kGenerates, R"({"input": "a"})", "model", "--is-embedding"},
           {prepare_embeddings, ModelKind::kClassifies, R"({"input": "a"})", "model", "/v1/rerank"},
           {prepare_rerank, ModelKind::kGenerates, R"({"query": "a", "documents": ["b"]})", "model", "label_token_ids"},
           {prepare_rerank, ModelKind::kClassifies, R"({"documents": ["b"]})", "query", "a string"},
           {prepare_rerank, ModelKind::kClassifies, R"({"query": "", "documents": ["b"]})", "query", "is empty"},
           {prepare_rerank, ModelKind::kClassifies, R"({"query": "a"})", "documents", "not empty"},
           {prepare_rerank, ModelKind::kClassifies, R"({"query": "a", "documents": []})", "documents", "not empty"},
           {prepare_rerank, ModelKind::kClassifies, R"({"query": "a", "documents": ["b", ""]})", "documents", "text 1"},
           {prepare_rerank, ModelKind::kClassifies, R"({"query": "a", "documents": [5]})", "documents", "strings"},
           {prepare_rerank, ModelKind::kClassifies, R"({"query": "a", "documents": [{"title": "b"}]})", "documents",
            "\"text\""},
           {prepare_rerank, ModelKind::kClassifies, R"({"query": "a", "documents": [{"text": "b", "title": "c"}]})",
            "documents", "alone"},
           {prepare_rerank, ModelKind::kClassifies, R"({"query": "a", "documents": ["b"], "top_n": -1})", "top_n",
            "[0,"},
           {prepare_rerank, ModelKind::kClassifies, R"({"query": "a", "documents": ["b"], "instruct": "c"})",
            "instruction", "--chat-template"},
           {prepare_score, ModelKind::kGenerates, R"({"text_1": "a", "text_2": "b"})", "model", "label_token_ids"},
           {prepare_score, ModelKind::kEmbeds, R"({"text_1": [], "text_2": "b"})", "text_1", "not empty"},
           {prepare_score, ModelKind::kEmbeds, R"({"text_1": "a"})", "text_2", "a string or a list"},
           {prepare_score, ModelKind::kEmbeds, R"({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]})", "text_1",
            "2 texts"},
           {prepare_score, ModelKind::kEmbeds, R"({"text_1": "a", "queries": "b", "text_2": "c"})", "queries",
            "one of them"},
           {prepare_score, ModelKind::kGenerates, R"({"query": "a", "text_2": "b"})", "query", "text_1 and text_2"},
           {prepare_score, ModelKind::kGenerates, R"({"query": "a", "items": ["b"]})", "label_token_ids", "not empty"},
           {prepare_score, ModelKind::kGenerates, R"({"query": "a", "items": [], "label_token_ids": [1]})", "items",
            "not empty"},
           {prepare_score, ModelKind::kGenerates, R"({"query": [5], "items": ["b"], "label_token_ids": [1]})", "items",
            "lists of token ids"},
           {prepare_score, ModelKind::kGenerates, R"({"query": "a", "items": [[5]], "label_token_ids": [1]})", "items",
            "strings"},
           {prepare_score, ModelKind::kGenerates, R"({"query": "a", "items": "b", "label_token_ids": [2048]})",
            "label_token_ids", "2048"},
           {prepare_score, ModelKind::kGenerates, R"({"items": "b", "label_token_ids": [1]})", "query", "a string or"},
       }) {
    SCOPED_TRACE(c.body);
    ApiResult<ApiJob> job = c.prepare(model_of(c.kind), c.body);
    ASSERT_FALSE(job.ok());
    EXPECT_EQ(job.error().http_status, 400);
    EXPECT_EQ(job.error().param, c.param);
    EXPECT_THAT(job.error().message, HasSubstr(c.message));
  }
  ServedModel two_labels = model_of(ModelKind::kClassifies);
  two_labels.num_labels = 2;
  EXPECT_THAT(prepare_rerank(two_labels, R"({"query": "a", "documents": ["b"]})").error().message,
              HasSubstr("2 labels"));
}

}  // namespace
}  // namespace tessera
