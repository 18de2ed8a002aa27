#include "tessera/server/generate_answer.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "tessera/server/graph_info.h"
#include "tessera/server/json_writer.h"
#include "tessera/server/token_text.h"
#include "tessera/server/usage.h"

namespace tessera {
namespace {

// One text's object, built up so that each step adds to it and copies it.
struct Choice {
  GenerateChoiceStyle style;
  std::string text{};  // JSON, between its quotes
  JsonWriter ids{};    // between its brackets, and so are these
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
    Choice& choice = choices_[index];
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
    if (!style_.stream || !event_is_due(choice.tokens, style_.stream_interval, choice.finish)) return;
    JsonWriter json;
    write(json, choice, style_.list ? static_cast<std::int64_t>(index) : -1);
    append_server_sent_event(stream, json.text());
  }

  std::string body() override {
    JsonWriter json;
    if (style_.list) json.array();
    for (const Choice& choice : choices_) write(json, choice, -1);
    if (style_.list) json.end_array();
    return json.take();
  }

  bool has_large_body() const override {
    for (const Choice& choice : choices_) {
      if (choice.style.hidden_states || choice.style.input_logprobs) return true;
    }
    return false;
  }

 private:
  // [logprob, id, text or null]
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
  void add_logprobs(Choice& choice, const TokenLogprobs& token) const {
    write_token(choice.output_logprobs, token.token);
    if (choice.style.top_logprobs) write_tops(choice.output_tops, token);
  }

  // The first entry has no logprob, as with SGLang.
  void write_input_logprobs(JsonWriter& json, const Choice& choice) const {
    constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
    const std::span<const TokenLogprobs> tokens = choice.end.prompt_logprobs;
    json.key("input_token_logprobs").array();
    write_token(json, {.id = tokens.empty() ? choice.style.last_prompt_id : tokens[0].token.id, .logprob = kNone});
    for (std::size_t i = 1; i < tokens.size(); ++i) write_token(json, tokens[i].token);
    json.end_array();
    if (!choice.style.top_logprobs) return;
    json.key("input_top_logprobs").array().null();
    for (std::size_t i = 1; i < tokens.size(); ++i) write_tops(json, tokens[i]);
    json.end_array();
  }

  // [[prompt's rows], row, row, …]
  void write_hidden_states(JsonWriter& json, const Choice& choice) const {
    const auto width = static_cast<std::size_t>(style_.hidden_size);
    const std::span<const float> states = choice.end.hidden_states;
    const std::size_t rows = states.size() / width;
    const std::size_t prompt_rows = std::min(rows, static_cast<std::size_t>(choice.style.prompt_tokens));
    const auto write_row = [&](std::size_t r) {
      json.array();
      for (const float value : states.subspan(r * width, width)) json.value(value);
      json.end_array();
    };
    json.key("hidden_states").array().array();
    for (std::size_t r = 0; r < prompt_rows; ++r) write_row(r);
    json.end_array();
    for (std::size_t r = prompt_rows; r < rows; ++r) write_row(r);
    json.end_array();
  }

  static void write_finish(JsonWriter& json, const Choice& choice) {
    json.key("finish_reason");
    if (choice.finish == FinishReason::kNone) {
      json.null();
      return;
    }
    json.object().key("type").value(finish_reason_name(choice.finish));
    if (choice.finish == FinishReason::kLength) json.key("length").value(choice.tokens);
    const StopMatch& matched = choice.end.matched;
    if (matched.text) {
      json.key("matched").value(*matched.text);
    } else if (matched.id) {
      json.key("matched").value(static_cast<std::int64_t>(matched.id->value()));
    }
    json.end_object();
  }

  void write(JsonWriter& json, const Choice& choice, std::int64_t index) const {
    const bool ended = choice.finish != FinishReason::kNone;
    json.object();
    if (index >= 0) json.key("index").value(index);
    json.key("text").raw('"' + choice.text + '"').key("output_ids").raw('[' + choice.ids.text() + ']');
    json.key("meta_info").object().key("id").value(choice.style.id);
    write_finish(json, choice);
    json.key("prompt_tokens").value(choice.style.prompt_tokens).key("completion_tokens").value(choice.tokens);
    if (choice.style.image_tokens > 0) json.key("image_tokens").value(choice.style.image_tokens);
    if (ended) {
      json.key("cached_tokens").value(choice.end.cached_tokens);
      json.key("e2e_latency").value(choice.end.total_ms * 1e-3);
    }
    if (choice.style.logprobs) {
      if (ended) write_input_logprobs(json, choice);
      json.key("output_token_logprobs").raw('[' + choice.output_logprobs.text() + ']');
      if (choice.style.top_logprobs) json.key("output_top_logprobs").raw('[' + choice.output_tops.text() + ']');
    }
    if (ended && choice.style.hidden_states) write_hidden_states(json, choice);
    if (ended && choice.style.graph_info) write_graph_info(json.key("graph_info"), GraphInfo::of(choice.end));
    json.end_object().end_object();
  }

  GenerateStyle style_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Answer> make_generate_answer(GenerateStyle style) {
  return std::make_unique<GenerateAnswer>(std::move(style));
}

}  // namespace tessera
