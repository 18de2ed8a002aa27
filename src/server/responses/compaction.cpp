#include "tessera/server/responses/compaction.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/prompts.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/http/random_id.h"
#include "tessera/server/memory_budget.h"
#include "tessera/server/openai/chat_text.h"
#include "tessera/server/openai/chat_text_style.h"
#include "tessera/server/openai/sampling_fields.h"
#include "tessera/server/responses/encoded_text.h"
#include "tessera/server/responses/response_items.h"
#include "tessera/server/responses/response_prompt.h"
#include "tessera/server/responses/response_tools.h"
#include "tessera/server/work/request_memory.h"

namespace tessera {
namespace {

constexpr std::string_view kTask =
    "Summarise this conversation, so that somebody else can go on with the task without it. Say what the user wants, "
    "what was done and decided, what was found out (names of files, functions, commands and values as they are), and "
    "what is left to do. Write the summary alone.";
constexpr std::string_view kIntroduction = "Summary of the conversation so far:\n";
constexpr std::int64_t kMostSummaryTokens = 8192;  // unless the request names another number
constexpr std::int64_t kLeastSummaryTokens = 256;  // a request without a number is refused if fewer fit

struct CompactionStyle {
  std::string id{};
  std::string user_messages{};  // the elements of a JSON list
  MemoryCharge charge{};        // for user_messages and their copy in the answer
  ChatTextStyle text{};
  std::int64_t prompt_tokens = 0;
};

class CompactionAnswer final : public Answer {
 public:
  explicit CompactionAnswer(CompactionStyle style) : style_(std::move(style)), parts_(style_.text) {
    usage_.prompt_tokens = style_.prompt_tokens;
  }

  Status failure() const override {
    if (!parts_.status().ok()) return internal_error(parts_.status().message());
    if (finish_ == FinishReason::kNone || summary_.find_first_not_of(" \t\r\n\f\v") != std::string::npos)
      return ok_status();
    return invalid_argument(
        "the model wrote no summary; accepted: a larger \"max_output_tokens\", or a shorter conversation");
  }
  void on_event(std::size_t, const RequestEvent& event, Completion* end, std::string&) override {
    if (event.token && parts_.in_reasoning()) ++usage_.reasoning_tokens;
    summary_ += parts_.push(event.text).content;
    if (event.finish != FinishReason::kNone) {
      finish_ = event.finish;
      summary_ += parts_.finish().content;
    }
    if (end == nullptr) return;
    usage_.completion_tokens = std::ssize(end->output_ids);
    usage_.cached_tokens = end->cached_tokens;
    usage_.drafts = end->drafts;
  }
  std::string body() override {
    JsonWriter json;
    json.object().key("id").value(style_.id).key("object").value("response.compaction");
    json.key("created_at").value(unix_time()).key("output").array();
    if (!style_.user_messages.empty()) json.raw(style_.user_messages);
    json.object().key("id").value(make_id("cmp_")).key("type").value("compaction");
    json.key("encrypted_content").value(encode_text(summary_)).end_object().end_array();
    if (finish_ != FinishReason::kStop) {
      const std::string_view reason = finish_ == FinishReason::kLength ? "max_output_tokens" : "cancelled";
      json.key("incomplete_details").object().key("reason").value(reason).end_object();
    }
    write_response_usage(json.key("usage"), usage_);
    return json.end_object().take();
  }
  Usage usage() const override { return usage_; }

 private:
  CompactionStyle style_;
  ChatText parts_;
  std::string summary_;
  FinishReason finish_ = FinishReason::kNone;
  Usage usage_{};
};

// Returns the user's messages among the items: the elements of a JSON list.
std::string user_messages(const Json& items) {
  std::string list;
  for (const Json& item : items.as_array()) {
    const Json* role = item.find("role");
    if (item_type(item) != "message" || role == nullptr || *role != Json("user")) continue;
    if (!list.empty()) list += ", ";
    list += kept_item(item).dump();
  }
  return list;
}

// Reads the user's messages of the whole conversation into `style`, and charges them to `memory`.
ApiStatus read_user_messages(const ResponsePrompt& prompt, MemoryBudget* memory, CompactionStyle& style) {
  style.charge = MemoryCharge(memory);
  std::string& list = style.user_messages;
  const auto charge = [&](std::int64_t beside) { return style.charge.set(2 * std::ssize(list) + beside); };
  const auto append = [&](std::string_view more) {
    if (!list.empty() && !more.empty()) list += ", ";
    list += more;
  };
  std::vector<const ConversationTurn*> turns;
  for (const ConversationTurn* turn = prompt.before.get(); turn != nullptr; turn = turn->before.get())
    turns.push_back(turn);
  for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) {
    TRY(charge(reading_bytes((*turn)->input)));
    append(user_messages(TRY(Json::parse((*turn)->input, "the stored items"))));
  }
  TRY(charge(2 * std::ssize(prompt.kept_input)));  // before the copy
  append(prompt.kept_input);
  return charge(0);
}

ApiStatus check_compaction(const ApiFields& fields, const ServedModel& model) {
  TRY(check_request_fields(fields, request_object::kResponses, model.allow_unknown_fields));
  for (const char* key : {"stream", "background"})
    if (TRY(fields.boolean_or(key, false))) return fields.unsupported(key, "false: a compaction is one answer");
  const Json* input = fields.find("input");
  if (input != nullptr && !input->is_string() && !input->is_array())
    return fields.wrong("input", "a string or a list of items");
  const bool has_items = input != nullptr && !(input->is_array() && input->as_array().empty());
  if (!has_items && fields.find("previous_response_id") == nullptr)
    return fields.wrong("input", "a string or a list of items, or a \"previous_response_id\"");
  return api_ok();
}

}  // namespace

ApiResult<ApiJob> prepare_compaction(const ServedModel& model, std::string_view body, ResponseStore& store,
                                     const std::string& owner) {
  const Json json = TRY(parse_body(body));
  std::string adapter = TRY(model.named_adapter(json, &ServedModel::check_named));
  TRY(model.check_generates());
  const ApiFields fields(json);
  TRY(check_compaction(fields, model));
  const OutputFields output = TRY(read_output_fields(fields, model));
  const std::optional<std::int64_t> asked = TRY(fields.integer("max_output_tokens", 1, model.context_length));
  // The prompt shows the tools, as the conversation's earlier prompts do, so that the prefix cache has its beginning.
  ResponseTools tools = TRY(read_response_tools(fields));
  withdraw_generic_tools(model, /*constrained=*/false, tools.fields);
  // Truncation leaves this room for the summary.
  const std::int64_t room = std::min(kMostSummaryTokens, model.context_length / 4);
  ResponsePrompt prompt = TRY(read_response_prompt(
      fields, model, tools.fields,
      {.store = store, .owner = owner, .keep = user_messages, .asked = asked.value_or(room), .task = kTask}));

  CompactionStyle style;
  style.id = make_id("resp_");
  style.text = TRY(text_style_of(model, {}, prompt.prompt, /*constrained=*/false, /*separate=*/true));
  TRY(read_user_messages(prompt, model.memory.get(), style));
  Request request{.prompt = std::move(prompt.prompt.ids),
                  .images = std::move(prompt.prompt.images),
                  .sampling = output.sampling,
                  .adapter = std::move(adapter),
                  .skip_special_tokens = !needs_special_tokens(style.text),
                  .priority = output.priority,
                  .timeout_s = output.timeout_s,
                  .retention = output.retention,
                  .branch_tokens = std::move(prompt.prompt.branch_tokens)};
  const std::int64_t least = asked.value_or(std::min(kLeastSummaryTokens, room));
  TRY(model.set_length(request, least, least, "input"));
  if (!asked)
    request.stop.max_new_tokens = std::min(kMostSummaryTokens, model.context_length - std::ssize(request.prompt));
  TRY(FanOut().add(1, std::ssize(request.prompt) + ids_of_parameters(output), "input"));
  style.prompt_tokens = std::ssize(request.prompt);

  ApiJob job{.id = style.id, .note = skipped_note(tools)};
  job.requests.push_back(std::move(request));
  job.answer = std::make_unique<CompactionAnswer>(std::move(style));
  if (const Status failure = job.answer->failure(); !failure.ok()) return api_error(failure);
  return job;
}

ApiResult<std::string> compacted_text(const ApiFields& item) {
  const std::optional<std::string> encoded = TRY(item.string("encrypted_content"));
  const std::optional<std::string> summary = encoded ? decode_text(*encoded) : std::nullopt;
  if (!summary) return item.wrong("encrypted_content", "a text that this server made");
  return std::string(kIntroduction) + *summary;
}

}  // namespace tessera
