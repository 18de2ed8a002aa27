// Sends requests with a field of request_fields.json to the function that reads the field. For tests only.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/server/adapters/adapter_requests.h"
#include "tessera/server/anthropic/messages_request.h"
#include "tessera/server/batches/new_batch.h"
#include "tessera/server/ollama/ollama_embed.h"
#include "tessera/server/ollama/ollama_models.h"
#include "tessera/server/ollama/ollama_request.h"
#include "tessera/server/openai/abort_request.h"
#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/close_session.h"
#include "tessera/server/openai/completion_request.h"
#include "tessera/server/openai/generate_request.h"
#include "tessera/server/openai/pooled/classify_request.h"
#include "tessera/server/openai/pooled/embedding_request.h"
#include "tessera/server/openai/pooled/rerank_request.h"
#include "tessera/server/openai/pooled/score_request.h"
#include "tessera/server/openai/text_routes.h"
#include "tessera/server/report/request_dump_test_util.h"
#include "tessera/server/responses/response_request.h"
#include "tessera/server/test_model.h"

namespace tessera::test {

// A model with everything that fields may need: tools, reasoning, grammars, a template with every variable, and a
// tokenizer that puts a token before each text.
struct FieldModel {
  FieldModel() : tokenizer(*Tokenizer::parse(with_first_token(), "tokenizer.json")), served(test::test_model()) {
    served.tokenizer = &tokenizer;
    served.reasoning_parser = "qwen3";
    served.tool_call_parser = "hermes";
    served.chat = *ChatTemplate::parse(std::string(test::kTestTemplate) +
                                       "{{ reasoning_effort }}{% for d in documents or [] %}{{ d.title }}{% endfor %}");
    const TokenId end = *tokenizer.token_to_id("<|im_end|>");
    served.grammars = *GrammarCompiler::create(tokenizer, served.vocab_size, {&end, 1});
  }

  static std::string with_first_token() {
    Json json = *Json::read_file(testing::source_path("models/demo/tokenizer.json"));
    json.set("post_processor", *Json::parse(R"({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [2046], "tokens": ["<|im_start|>"]}}})",
                                            "post_processor"));
    return json.dump();
  }

  // Returns an embedding model if `embeds`. Otherwise returns a classifier that joins text pairs by a template. Both
  // models lack tools and grammars.
  ServedModel without_tokens(bool embeds) const {
    ServedModel model = test::test_model();
    model.tokenizer = &tokenizer;
    model.allow_unknown_fields = served.allow_unknown_fields;
    if (embeds) {
      model.embedding = EmbeddingConfig();
    } else {
      model.num_labels = 1;
      model.label_names.resize(2048);  // one name for each logit that end_one() makes
      model.chat = *ChatTemplate::parse("{{ instruct }}{{ query }}|{{ document }}");
      model.joins_pairs_by_template = true;
    }
    return model;
  }

  Tokenizer tokenizer;
  ServedModel served;
};

// An example request that contains one of the objects of request_object, and the place of the object in the request.
struct Place {
  std::string request;  // the request without the tested field
  std::string within;   // the member that is the object; "": the request itself
  std::string route;
};

inline const Place& place_of(const std::string& object) {
  static const std::map<std::string, Place> places = {
      {"chat", {R"({"messages": [{"role": "user", "content": "a"}], "seed": 1, "max_tokens": 8})", "", "chat"}},
      {"completions", {R"({"prompt": [5, 6], "seed": 1})", "", "completions"}},
      {"generate", {R"({"input_ids": [5, 6], "sampling_params": {"seed": 1}})", "", "generate"}},
      {"sampling_params", {R"({"input_ids": [5, 6], "sampling_params": {"seed": 1}})", "sampling_params", "generate"}},
      {"stream_options", {R"({"prompt": [5], "seed": 1, "stream": true})", "stream_options", "completions"}},
      {"structured_outputs", {R"({"prompt": [5], "seed": 1})", "structured_outputs", "completions"}},
      {"tokenize", {R"({"prompt": "a"})", "", "tokenize"}},
      {"detokenize", {R"({"tokens": [2046, 5]})", "", "detokenize"}},
      {"embeddings", {R"({"input": "a b"})", "", "embeddings"}},
      {"classify", {R"({"input": "a b"})", "", "classify"}},
      {"rerank", {R"({"query": "a", "documents": ["b", "c d"]})", "", "rerank"}},
      {"score", {R"({"text_1": "a", "text_2": "b"})", "", "score"}},
      {"messages",
       {R"({"model": "m", "max_tokens": 8, "seed": 1, "messages": [{"role": "user", "content": "a"}]})", "",
        "messages"}},
      {"count_tokens", {R"({"model": "m", "messages": [{"role": "user", "content": "a"}]})", "", "count_tokens"}},
      {"responses", {R"({"input": "a", "seed": 1})", "", "responses"}},
      {"abort", {R"({"rid": "one"})", "", "abort"}},
      {"close_session", {R"({"session_id": "one"})", "", "close_session"}},
      {"load_adapter", {R"({"lora_name": "one", "lora_path": "p"})", "", "load_adapter"}},
      {"unload_adapter", {R"({"lora_name": "one"})", "", "unload_adapter"}},
      {"batches",
       {R"({"input_file_id": "file-1", "endpoint": "/v1/completions", "completion_window": "24h"})", "", "batches"}},
      {"ollama_chat",
       {R"({"model": "demo", "messages": [{"role": "user", "content": "a"}], "options": {"seed": 1, "num_predict": 8}})",
        "", "ollama_chat"}},
      {"ollama_generate",
       {R"({"model": "demo", "prompt": "a", "options": {"seed": 1, "num_predict": 8}})", "", "ollama_generate"}},
      {"ollama_options", {R"({"model": "demo", "prompt": "a", "options": {"seed": 1}})", "options", "ollama_generate"}},
      {"ollama_embed", {R"({"model": "demo", "input": "a b"})", "", "ollama_embed"}},
      {"ollama_embeddings", {R"({"model": "demo", "prompt": "a b"})", "", "ollama_embeddings"}},
      {"ollama_show", {R"({"model": "demo"})", "", "ollama_show"}},
      {"label_score", {R"({"query": [5], "items": [[6]], "label_token_ids": [1, 2]})", "", "label_score"}},
  };
  return places.at(object);
}

inline Json without(const Json& object, const std::string& key) {
  Json out = Json::object();
  for (const auto& [name, value] : object.as_object())
    if (name != key) out.set(name, value);
  return out;
}

// Returns the request that tests a row of request_fields.json. The request has the field that the row names, with the
// value `value`. If `value` is null, the request lacks this field.
inline std::string request_of(const Json& row, const std::string& object, const Json* value) {
  const Place& place = place_of(object);
  Json request = *Json::parse(place.request, "request");
  Json inner = Json::object();
  if (place.within.empty()) {
    inner = request;
  } else if (const Json* there = request.find(place.within)) {
    inner = *there;
  }
  if (const Json* with = row.find("with"))
    for (const auto& [name, other] : with->as_object()) inner.set(name, other);
  const Json* removed = row.find("without");
  if (value != nullptr && removed != nullptr)
    for (const Json& name : removed->as_array()) inner = without(inner, name.as_string());
  if (value != nullptr) inner.set(row.find("name")->as_string(), *value);
  if (place.within.empty()) return inner.dump();
  if (!inner.as_object().empty()) request.set(place.within, inner);
  return request.dump();
}

struct Outcome {
  std::optional<ApiError> error{};
  std::string shown{};  // the request to the engine and an example of an answer, as text
};

inline Outcome outcome(ApiResult<ApiJob> job) {
  if (!job.ok()) return {.error = job.error()};
  return {.shown = test::dump_job(*job)};
}
inline Outcome outcome(ApiResult<std::string> body) {
  if (!body.ok()) return {.error = body.error()};
  return {.shown = *std::move(body)};
}

inline Outcome outcome(ApiResult<LoadAdapterFields> read) {
  if (!read.ok()) return {.error = read.error()};
  return {.shown = fmt::format("{} from {}{}{}", read->load.name, read->path, read->load.replace ? ", in place" : "",
                               read->load.pinned ? ", pinned" : "")};
}
inline Outcome outcome(ApiResult<UnloadAdapterRequest> request) {
  if (!request.ok()) return {.error = request.error()};
  return {.shown = request->name};
}
inline Outcome outcome(ApiResult<AbortRequest> request) {
  if (!request.ok()) return {.error = request.error()};
  return {.shown = "ends \"" + request->id + "\""};
}
inline Outcome outcome(ApiResult<CloseSession> request) {
  if (!request.ok()) return {.error = request.error()};
  return {.shown = "closes \"" + request->session + "\""};
}

inline Outcome outcome(ApiResult<Batch> batch) {
  if (!batch.ok()) return {.error = batch.error()};
  return {.shown = batch_record(*batch)};
}

inline Outcome send(const std::string& object, const std::string& body, const FieldModel& field_model) {
  const std::string& route = place_of(object).route;
  const ServedModel& model = field_model.served;
  if (route == "embeddings") return outcome(prepare_embeddings(field_model.without_tokens(/*embeds=*/true), body));
  if (route == "classify") return outcome(prepare_classify(field_model.without_tokens(/*embeds=*/false), body));
  if (route == "rerank") return outcome(prepare_rerank(field_model.without_tokens(/*embeds=*/false), body));
  if (route == "score") return outcome(prepare_score(field_model.without_tokens(/*embeds=*/false), body));
  if (route == "label_score") return outcome(prepare_score(model, body));
  if (route == "responses") {
    ResponseStore store({});
    ApiResult<ResponseJob> made = prepare_response(model, body, store, /*owner=*/"");
    return outcome(made.ok() ? ApiResult<ApiJob>(std::move(made->job)) : ApiResult<ApiJob>(made.error()));
  }
  if (route == "chat") return outcome(prepare_chat(model, body));
  if (route == "completions") return outcome(prepare_completion(model, body));
  if (route == "messages") return outcome(prepare_messages(model, body));
  if (route == "count_tokens") return outcome(count_tokens_body(model, body));
  if (route == "generate") return outcome(prepare_generate(model, body));
  if (route == "ollama_chat") return outcome(prepare_ollama_chat(model, body));
  if (route == "ollama_generate") return outcome(prepare_ollama_generate(model, body));
  if (route == "ollama_embed") return outcome(prepare_ollama_embed(field_model.without_tokens(/*embeds=*/true), body));
  if (route == "ollama_embeddings")
    return outcome(prepare_ollama_embeddings(field_model.without_tokens(/*embeds=*/true), body));
  if (route == "ollama_show") return outcome(ollama_show_body(model, body));
  if (route == "load_adapter") return outcome(read_load_adapter_fields(model, body));
  if (route == "unload_adapter") return outcome(read_unload_adapter(model, body));
  if (route == "abort") return outcome(read_abort(model, body));
  if (route == "close_session") return outcome(read_close_session(model, body));
  if (route == "batches") return outcome(read_new_batch(model, body));
  if (route == "tokenize") return outcome(tokenize_body(model, body));
  return outcome(detokenize_body(model, body));
}

inline std::string param_of(const Json& row, const std::string& object) {
  const Place& place = place_of(object);
  const std::string& name = row.find("name")->as_string();
  return place.within.empty() ? name : place.within + "." + name;
}

// The fixture of tests that compare the rows of request_fields.json with the functions that read the fields.
class FieldsTest : public ::testing::Test {
 protected:
  static const Json& fields() {
    static const Json data = *Json::read_file(testing::source_path("src/server/fields/request_fields.json"));
    return *data.find("fields");
  }

  // Visits the rows of request_fields.json whose treatment is one of `treatments`. Calls check(row, object) for each
  // object that a row lists in "on".
  template <class Check>
  static void for_each(const std::vector<std::string>& treatments, const Check& check) {
    int count = 0;
    for (const Json& row : fields().as_array()) {
      const std::string& treatment = row.find("treatment")->as_string();
      if (std::find(treatments.begin(), treatments.end(), treatment) == treatments.end()) continue;
      for (const auto& [object, known_by] : row.find("on")->as_object()) {
        SCOPED_TRACE(fmt::format("{} of {}", row.find("name")->as_string(), object));
        check(row, object);
        ++count;
      }
    }
    EXPECT_GT(count, 5);
  }

  FieldModel model_;
};

}  // namespace tessera::test
