#include "tessera/server/openai/pooled/rerank_request.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/fields/usage.h"
#include "tessera/server/openai/pooled/text_pairs.h"
#include "tessera/server/openai/sampling_fields.h"

namespace tessera {
namespace {

constexpr std::int64_t kMaxTop = std::int64_t{1} << 31;
constexpr std::string_view kTexts = "texts";  // TEI's name for the documents

enum class RerankForm : std::uint8_t {
  kObject,  // vLLM's form: an object with the results and the usage
  kTei,     // the form of TEI (Hugging Face's Text Embeddings Inference): only the list of results
  kSglang,  // SGLang's form: also only the list, but its members have other names
};

struct RerankStyle {
  std::string id;
  std::string model;
  std::vector<std::string> documents{};
  std::size_t top = 0;  // number of results
  bool return_documents = true;
  RerankForm form = RerankForm::kObject;
};

class RerankAnswer : public Answer {
 public:
  RerankAnswer(RerankStyle style, PairScores scores) : style_(std::move(style)), scores_(std::move(scores)) {}

  void on_event(std::size_t index, const RequestEvent&, Completion* end, std::string&) override {
    if (end != nullptr) scores_.take(index, *end);
  }

  std::string body() override {
    std::vector<double> scores(scores_.size());
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = scores_.score(i);
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    order.resize(std::min(order.size(), style_.top));
    JsonWriter json;
    if (style_.form != RerankForm::kObject) {
      const std::string_view text_key = style_.form == RerankForm::kTei ? "text" : "document";
      json.array();
      for (const std::size_t i : order) {
        json.object().key("index").value(i).key("score").value(scores[i]);
        if (style_.return_documents) json.key(text_key).value(style_.documents[i]);
        json.end_object();
      }
      return json.end_array().take();
    }
    json.object().key("id").value(style_.id).key("model").value(style_.model).key("usage");
    write_usage(json, {.prompt_tokens = scores_.usage().prompt_tokens, .cached_tokens = scores_.usage().cached_tokens});
    json.key("results").array();
    for (const std::size_t i : order) {
      json.object().key("index").value(i).key("relevance_score").value(scores[i]);
      if (style_.return_documents) json.key("document").object().key("text").value(style_.documents[i]).end_object();
      json.end_object();
    }
    return json.end_array().end_object().take();
  }

  std::optional<JsonParts> large_body() override {
    JsonParts whole;
    return whole.once([this](JsonWriter& json) { json.raw(body()); });
  }

 private:
  RerankStyle style_;
  PairScores scores_;
};

// Reads the documents: strings, or objects with a text.
ApiResult<std::vector<std::string>> read_documents(const ApiFields& fields) {
  constexpr std::string_view kAccepted = "a list of strings or of objects {\"text\": string}, not empty";
  const Json* given = TRY(fields.array("documents"));
  if (given == nullptr || given->as_array().empty()) return fields.wrong("documents", kAccepted);
  std::vector<std::string> texts;
  for (const Json& document : given->as_array()) {
    const Json* text = document.is_object() ? document.find("text") : &document;
    if (text == nullptr || !text->is_string()) return fields.wrong("documents", kAccepted);
    if (document.is_object() && document.as_object().size() > 1)
      return fields.unsupported("documents", "objects with \"text\" alone");
    texts.push_back(text->as_string());
  }
  return texts;
}

// Reads the pooled fields, and TEI's fields for the same purposes: raw_scores, truncate and truncation_direction.
ApiResult<PooledFields> read_rerank_pooled_fields(const ApiFields& fields, const ServedModel& model) {
  PooledFields pooled = TRY(read_pooled_fields(fields, model));
  if (const std::optional<bool> raw = TRY(fields.boolean("raw_scores"))) {
    if (pooled.use_activation) return fields.unsupported("raw_scores", "none beside \"use_activation\"");
    pooled.use_activation = !*raw;
  }
  const std::string side = TRY(fields.string("truncation_direction")).value_or("Right");
  if (side != "Left" && side != "Right" && side != "left" && side != "right")
    return fields.wrong("truncation_direction", R"("Left" or "Right")");
  if (!TRY(fields.boolean_or("truncate", false))) return pooled;
  if (pooled.truncation.most) return fields.unsupported("truncate", "none beside \"truncate_prompt_tokens\"");
  pooled.truncation = {.most = model.context_length, .keeps_first = side == "Right" || side == "right"};
  return pooled;
}

// Reads the fields of a request in TEI's form. A request has this form if it has the field "texts", which is TEI's name
// for the documents.
ApiStatus read_tei_fields(const ApiFields& fields, RerankStyle& style) {
  for (const std::string_view key : {"documents", "top_n", "top_k", "return_documents"})
    if (fields.find(key) != nullptr) return fields.unsupported(key, "none beside \"texts\"");
  style.form = RerankForm::kTei;
  style.documents = TRY(fields.strings(kTexts));
  if (style.documents.empty()) return fields.wrong(kTexts, "a list of strings, not empty");
  style.return_documents = TRY(fields.boolean_or("return_text", false));
  style.top = style.documents.size();
  return api_ok();
}

ApiStatus read_list_fields(const ApiFields& fields, RerankStyle& style) {
  // A request with "rid", even null, comes from a gateway of SGLang, which can read only SGLang's form.
  const auto names_rid = [](const auto& member) { return member.first == "rid"; };
  if (std::ranges::any_of(fields.members(), names_rid)) style.form = RerankForm::kSglang;
  if (fields.find("return_text") != nullptr) return fields.unsupported("return_text", "none without \"texts\"");
  style.documents = TRY(read_documents(fields));
  style.return_documents = TRY(fields.boolean_or("return_documents", true));
  const std::optional<std::int64_t> top_n = TRY(fields.integer("top_n", 0, kMaxTop));
  const std::optional<std::int64_t> top_k = TRY(fields.integer("top_k", 0, kMaxTop));
  if (top_n && top_k) return fields.unsupported("top_k", "none beside \"top_n\"");
  // A value of 0 asks for all documents, as in vLLM.
  const std::int64_t top = top_n ? *top_n : top_k.value_or(0);
  style.top = top == 0 ? style.documents.size() : static_cast<std::size_t>(top);
  return api_ok();
}

}  // namespace

ApiResult<ApiJob> prepare_rerank(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  TRY(model.check_routed_name(json));
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kRerank, model.allow_unknown_fields));
  const PooledFields pooled = TRY(read_rerank_pooled_fields(fields, model));
  RerankStyle style{.id = TRY(read_answer_id(fields, "rerank-")), .model = model.name};
  const std::optional<std::string> query = TRY(fields.string("query"));
  if (!query) return fields.wrong("query", "a string");
  const std::string instruction = TRY(read_instruction(fields));
  const bool tei = fields.find(kTexts) != nullptr;
  TRY(tei ? read_tei_fields(fields, style) : read_list_fields(fields, style));

  PairScores scores = TRY(
      PairScores::create(model, pooled, {.texts = {*query}, .param = "query"},
                         {.texts = style.documents, .param = tei ? std::string(kTexts) : "documents"}, instruction));
  ApiJob job{.id = style.id, .requests = scores.take_requests()};
  job.answer = std::make_unique<RerankAnswer>(std::move(style), std::move(scores));
  return job;
}

}  // namespace tessera
