#include "tessera/server/openai/generate_answer.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/usage.h"
#include "tessera/server/openai/token_text.h"
#include "tessera/server/report/graph_info.h"

namespace tessera {
namespace {

// The JSON object of one generated text. Each step of a stream extends the object and sends all of it.
struct GenerateChoice {
  GenerateChoiceStyle style;
  std::string text{};  // escaped as in a JSON string, without the quotes
  JsonWriter ids{};    // a JSON list without its brackets, like the lists below
  JsonWriter output_logprobs{};
  JsonWriter output_tops{};
  std::int64_t tokens = 0;
  FinishReason finish = FinishReason::kNone;
  Completion end{};
};

std::string json_text(std::string_view text) {
  JsonWriter json;
  const std::string quoted = json.value(text).take();
  return quoted.substr(1, quoted.size() - 2);
}

class GenerateAnswer : public Answer {
 public:
  explicit GenerateAnswer(GenerateStyle style) : style_(std::move(style)) {
    for (GenerateChoiceStyle& choice : style_.choices) choices_.push_back({.style = std::move(choice)});
  }

  void on_event(std::size_t index, const RequestEvent& event, Completion* end, std::string& stream) override {
    GenerateChoice& choice = choices_[index];
    choice.finish = event.finish;
    choice.text += json_text(event.text);
    if (event.token) {
      ++choice.tokens;
      choice.ids.value(static_cast<std::int64_t>(event.token->value()));
    }
    if (event.logprobs) add_logprobs(choice, *event.logprobs);
    if (end != nullptr) {
      choice.tokens = std::ssize(end->output_ids);
      choice.end = std::move(*end);
    }
    if (!style_.stream || (is_large(choice) && has_ended(choice))) return;
    if (!event_is_due(choice.tokens, style_.stream_interval, choice.finish)) return;
    JsonWriter json;
    write(json, choice, style_.list ? static_cast<std::int64_t>(index) : -1);
    append_server_sent_event(stream, json.text());
  }

  std::string body() override { return parts().all(); }
  std::optional<JsonParts> large_body() override {
    return std::ranges::any_of(choices_, is_large) ? std::optional(parts()) : std::nullopt;
  }
  std::optional<JsonParts> large_events() override {
    if (std::ranges::none_of(choices_, is_large)) return std::nullopt;
    JsonParts events;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (!is_large(choices_[i])) continue;
      events.once([](JsonWriter& json) { json.between("data: "); });
      add_choice(events, choices_[i], style_.list ? static_cast<std::int64_t>(i) : -1);
      events.once([](JsonWriter& json) { json.between("\n\n"); });
    }
    return events;
  }

 private:
  // Writes [logprob, id, text or null].
  void write_token(JsonWriter& json, const TokenLogprob& token) const {
    json.array().value(token.logprob).value(static_cast<std::int64_t>(token.id.value()));
    if (style_.text_in_logprobs) {
      json.value(token_text(style_.tokenizer, token.id));
    } else {
      json.null();
    }
    json.end_array();
  }
  void write_tops(JsonWriter& json, const TokenLogprobs& token) const {
    json.array();
    for (const TokenLogprob& top : token.top) write_token(json, top);
    json.end_array();
  }
  void add_logprobs(GenerateChoice& choice, const TokenLogprobs& token) const {
    write_token(choice.output_logprobs, token.token);
    if (choice.style.top_logprobs) write_tops(choice.output_tops, token);
  }

  // Writes prompt token i with its log-probability, which is null for the first token, as in SGLang.
  void write_input_logprob(JsonWriter& json, const GenerateChoice& choice, std::size_t i) const {
    constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
    const std::span<const TokenLogprobs> tokens = choice.end.prompt_logprobs;
    if (i > 0) return write_token(json, tokens[i].token);
    write_token(json, {.id = tokens.empty() ? choice.style.last_prompt_id : tokens[0].token.id, .logprob = kNone});
  }
  void write_input_tops(JsonWriter& json, const GenerateChoice& choice, std::size_t i) const {
    if (i > 0) return write_tops(json, choice.end.prompt_logprobs[i]);
    json.null();
  }
  // Returns the number of prompt tokens to write, at least one.
  static std::size_t input_count(const GenerateChoice& choice) {
    return std::max<std::size_t>(choice.end.prompt_logprobs.size(), 1);
  }

  // Writes row r of the hidden states, and closes the prompt's list after the prompt's last row. The rows are written
  // as [[the prompt's rows], output row, output row, …].
  void write_hidden_row(JsonWriter& json, const GenerateChoice& choice, std::size_t r) const {
    const auto width = static_cast<std::size_t>(style_.hidden_size);
    json.array();
    for (const float value : std::span(choice.end.hidden_states).subspan(r * width, width)) json.value(value);
    json.end_array();
    if (r + 1 == prompt_rows(choice)) json.end_array();
  }
  std::size_t rows(const GenerateChoice& choice) const {
    return choice.end.hidden_states.size() / static_cast<std::size_t>(style_.hidden_size);
  }
  std::size_t prompt_rows(const GenerateChoice& choice) const {
    return std::min(rows(choice), static_cast<std::size_t>(choice.style.prompt_tokens));
  }

  static void write_finish(JsonWriter& json, const GenerateChoice& choice) {
    json.key("finish_reason");
    if (choice.finish == FinishReason::kNone) {
      json.null();
      return;
    }
    json.object().key("type").value(answer_finish_reason(choice.finish));
    if (choice.finish == FinishReason::kCancelled) json.key("message").value("ended by /abort_request");
    if (choice.finish == FinishReason::kLength) json.key("length").value(choice.tokens);
    const StopMatch& matched = choice.end.matched;
    if (matched.text) {
      json.key("matched").value(*matched.text);
    } else if (matched.id) {
      json.key("matched").value(static_cast<std::int64_t>(matched.id->value()));
    }
    json.end_object();
  }

  // The next functions write a choice's object in sections. The choice's long lists are written between the sections.

  void write_begin(JsonWriter& json, const GenerateChoice& choice, std::int64_t index) const {
    json.object();
    if (index >= 0) json.key("index").value(index);
    json.key("text").raw('"' + choice.text + '"').key("output_ids").raw('[' + choice.ids.text() + ']');
    json.key("meta_info").object().key("id").value(choice.style.id);
    write_finish(json, choice);
    json.key("prompt_tokens").value(choice.style.prompt_tokens).key("completion_tokens").value(choice.tokens);
    if (choice.style.image_tokens > 0) json.key("image_tokens").value(choice.style.image_tokens);
    if (!has_ended(choice)) return;
    json.key("cached_tokens").value(choice.end.cached_tokens);
    if (const DraftTotals& drafts = choice.end.drafts; drafts.steps > 0) {
      json.key("spec_verify_ct").value(drafts.steps).key("spec_draft_token_num").value(drafts.drafted);
      json.key("spec_accept_token_num").value(drafts.kept).key("spec_accept_rate").value(drafts.kept_share());
      json.key("spec_accept_length").value(drafts.mean_length());
    }
    json.key("e2e_latency").value(choice.end.total_ms * 1e-3);
  }
  static void write_output_logprobs(JsonWriter& json, const GenerateChoice& choice) {
    json.key("output_token_logprobs").raw('[' + choice.output_logprobs.text() + ']');
    if (choice.style.top_logprobs) json.key("output_top_logprobs").raw('[' + choice.output_tops.text() + ']');
  }
  static void write_end(JsonWriter& json, const GenerateChoice& choice) {
    if (has_ended(choice) && choice.style.graph_info)
      write_graph_info(json.key("graph_info"), GraphInfo::of(choice.end));
    json.end_object().end_object();
  }
  static bool is_large(const GenerateChoice& choice) {
    return choice.style.hidden_states || choice.style.input_logprobs;
  }
  static bool has_ended(const GenerateChoice& choice) { return choice.finish != FinishReason::kNone; }

  // Writes one event of a stream. The last event of a large choice is instead written by large_events().
  void write(JsonWriter& json, const GenerateChoice& choice, std::int64_t index) const {
    write_begin(json, choice, index);
    if (!has_ended(choice)) {
      if (choice.style.logprobs) write_output_logprobs(json, choice);
      return write_end(json, choice);
    }
    JsonParts lists;
    add_lists(lists, choice);
    write_end(lists.write_all(json), choice);
  }

  // Adds the lists of a choice that has ended.
  void add_lists(JsonParts& parts, const GenerateChoice& choice) const {
    if (choice.style.logprobs) {
      parts.once([](JsonWriter& json) { json.key("input_token_logprobs").array(); });
      parts.each(input_count(choice), [&](JsonWriter& json, std::size_t i) { write_input_logprob(json, choice, i); });
      parts.once([](JsonWriter& json) { json.end_array(); });
      if (choice.style.top_logprobs) {
        parts.once([](JsonWriter& json) { json.key("input_top_logprobs").array(); });
        parts.each(input_count(choice), [&](JsonWriter& json, std::size_t i) { write_input_tops(json, choice, i); });
        parts.once([](JsonWriter& json) { json.end_array(); });
      }
      parts.once([&](JsonWriter& json) { write_output_logprobs(json, choice); });
    }
    if (!choice.style.hidden_states) return;
    parts.once([&](JsonWriter& json) {
      json.key("hidden_states").array().array();
      if (prompt_rows(choice) == 0) json.end_array();
    });
    parts.each(rows(choice), [&](JsonWriter& json, std::size_t r) { write_hidden_row(json, choice, r); });
    parts.once([](JsonWriter& json) { json.end_array(); });
  }

  // Adds the object of a choice that has ended.
  void add_choice(JsonParts& parts, const GenerateChoice& choice, std::int64_t index) const {
    parts.once([&choice, index, this](JsonWriter& json) { write_begin(json, choice, index); });
    add_lists(parts, choice);
    parts.once([&](JsonWriter& json) { write_end(json, choice); });
  }

  JsonParts parts() {
    JsonParts parts;
    if (style_.list) parts.once([](JsonWriter& json) { json.array(); });
    for (const GenerateChoice& choice : choices_) add_choice(parts, choice, -1);
    if (style_.list) parts.once([](JsonWriter& json) { json.end_array(); });
    return parts;
  }

  GenerateStyle style_;
  std::vector<GenerateChoice> choices_;
};

}  // namespace

std::unique_ptr<Answer> make_generate_answer(GenerateStyle style) {
  return std::make_unique<GenerateAnswer>(std::move(style));
}

}  // namespace tessera
