#include "tessera/server/openai/completion_answer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "tessera/server/fields/json_writer.h"
#include "tessera/server/openai/token_extras.h"
#include "tessera/server/openai/token_text.h"
#include "tessera/server/report/graph_info.h"

namespace tessera {
namespace {

// Collects log-probabilities in the form of OpenAI's completions: four lists, which have one element for each token.
class LogprobColumns {
 public:
  LogprobColumns(const Tokenizer* tokenizer, bool tokens_as_ids) : tokenizer_(tokenizer), as_ids_(tokens_as_ids) {}

  void add(const TokenLogprobs& token) {
    tokens_.value(shown_token(tokenizer_, token.token.id, as_ids_));
    logprobs_.value(token.token.logprob);
    offsets_.value(offset_);
    // Counts characters by their first bytes, so that a character split over several tokens counts once.
    const std::string bytes = token_bytes(tokenizer_, token.token.id);
    offset_ += std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xc0) != 0x80; });
    add_top(token);
  }
  bool empty() const { return tokens_.text().empty(); }
  // Writes the columns as an object and empties them. Later text offsets continue from here.
  void write(JsonWriter& json) {
    json.object().key("tokens").raw("[" + tokens_.take() + "]");
    json.key("token_logprobs").raw("[" + logprobs_.take() + "]");
    json.key("top_logprobs").raw("[" + tops_.take() + "]");
    json.key("text_offset").raw("[" + offsets_.take() + "]").end_object();
  }

 private:
  void add_top(const TokenLogprobs& token) {
    if (std::isnan(token.token.logprob)) {
      tops_.null();
      return;
    }
    // Tokens with the same text would have the same key, so only the most probable of them is written.
    std::set<std::string> seen;
    tops_.object();
    const auto put = [&](const TokenLogprob& one) {
      const std::string text = shown_token(tokenizer_, one.id, as_ids_);
      if (seen.insert(text).second) tops_.key(text).value(one.logprob);
    };
    for (const TokenLogprob& one : token.top) put(one);
    put(token.token);
    tops_.end_object();
  }

  const Tokenizer* tokenizer_;
  bool as_ids_;
  JsonWriter tokens_, logprobs_, tops_, offsets_;
  std::int64_t offset_ = 0;
};

struct CompletionChoice {
  CompletionChoice(const Tokenizer* tokenizer, bool tokens_as_ids) : columns(tokenizer, tokens_as_ids) {}
  std::string text{};  // in a stream: the text of the next chunk; otherwise: the whole text
  LogprobColumns columns;
  FinishReason finish = FinishReason::kNone;
  std::int64_t tokens = 0;
  std::vector<TokenId> ids{};  // in a stream: the ids of the next chunk; otherwise: all ids
  GraphInfo graph_info{};
  std::vector<TokenLogprobs> prompt_logprobs{};
  std::vector<float> hidden_states{};
};

class CompletionAnswer : public Answer {
 public:
  explicit CompletionAnswer(CompletionStyle style) : style_(std::move(style)) {
    JsonWriter head;
    head.object().key("id").value(style_.id).key("object").value("text_completion");
    head.key("created").value(unix_time()).key("model").value(style_.model);
    if (!style_.fingerprint.empty()) head.key("system_fingerprint").value(style_.fingerprint);
    head_ = head.take();
    for (std::size_t p = 0; p < style_.prompt_tokens.size(); ++p) {
      usage_.prompt_tokens += style_.prompt_tokens[p];
      for (int c = 0; c < style_.n; ++c) {
        choices_.emplace_back(style_.tokenizer, style_.tokens_as_ids);
        if (!style_.echo.empty()) choices_.back().text = style_.echo[p];
      }
    }
  }

  void on_event(std::size_t index, const RequestEvent& event, Completion* end, std::string& stream) override {
    CompletionChoice& choice = choices_[index];
    choice.text += event.text;
    choice.finish = event.finish;
    if (event.token) {
      ++choice.tokens;
      if (style_.token_ids) choice.ids.push_back(*event.token);
    }
    if (end != nullptr) add_end(index, *end);
    if (!style_.stream.stream) return;
    if (event.logprobs) choice.columns.add(*event.logprobs);
    if (!event_is_due(choice.tokens, style_.stream.interval, choice.finish)) return;
    const bool says_nothing = choice.text.empty() && choice.columns.empty() && choice.ids.empty();
    if (!says_nothing || choice.finish != FinishReason::kNone) append_chunk(index, stream);
  }

  std::string last_events() override {
    if (!style_.stream.include_usage) return "";
    JsonWriter json;
    json.raw(head_).key("choices").array().end_array().key("usage");
    write_usage(json, usage_);
    return server_sent_event(json.end_object().take());
  }

  std::string body() override { return parts().all(); }
  Usage usage() const override { return usage_; }
  std::optional<JsonParts> large_body() override {
    return style_.logprobs || style_.prompt_logprobs || style_.hidden_states ? std::optional(parts()) : std::nullopt;
  }

 private:
  void add_end(std::size_t index, Completion& end) {
    CompletionChoice& choice = choices_[index];
    choice.graph_info = GraphInfo::of(end);
    choice.tokens = std::ssize(end.output_ids);
    usage_.completion_tokens += choice.tokens;
    usage_.drafts.add(end.drafts);
    // Counts cached tokens only for the first choice of a prompt. The later choices find the prompt in the cache
    // because the first choice has put it there.
    if (index % static_cast<std::size_t>(style_.n) == 0) usage_.cached_tokens += end.cached_tokens;
    if (style_.stream.stream) return;
    if (style_.echo_logprobs) {
      for (const TokenLogprobs& token : end.prompt_logprobs) choice.columns.add(token);
    }
    for (const TokenLogprobs& token : end.output_logprobs) choice.columns.add(token);
    choice.prompt_logprobs = std::move(end.prompt_logprobs);
    choice.hidden_states = std::move(end.hidden_states);
  }

  void append_chunk(std::size_t index, std::string& stream) {
    JsonWriter& json = chunk_;
    json.clear();
    json.raw(head_).key("choices").array();
    write_choice(json, index);
    write_choice_end(json, choices_[index]);
    json.end_array();
    const CompletionChoice& choice = choices_[index];
    if (style_.stream.continuous_usage_stats) {
      const std::size_t prompt = index / static_cast<std::size_t>(style_.n);
      write_usage(json.key("usage"),
                  {.prompt_tokens = style_.prompt_tokens[prompt], .completion_tokens = choice.tokens});
    } else if (style_.stream.include_usage) {
      json.key("usage").null();
    }
    if (style_.graph_info && choice.finish != FinishReason::kNone)
      write_graph_infos(json.key("graph_info"), std::span(choices_).subspan(index, 1), index);
    append_server_sent_event(stream, json.end_object().text());
  }

  // Returns the body of an answer that is not streamed.
  JsonParts parts() {
    JsonParts parts;
    parts.once([this](JsonWriter& json) { json.raw(head_).key("choices").array(); });
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const CompletionChoice& choice = choices_[i];
      parts.once([this, i](JsonWriter& json) { write_choice(json, i); });
      if (style_.prompt_logprobs) {
        parts.once([](JsonWriter& json) { json.key("prompt_logprobs"); });
        add_prompt_logprobs(parts, choice.prompt_logprobs, style_.tokenizer);
      }
      parts.once([this, &choice](JsonWriter& json) { write_choice_end(json, choice); });
    }
    return parts.once([this](JsonWriter& json) {
      json.end_array().key("usage");
      write_usage(json, usage_);
      if (style_.graph_info) write_graph_infos(json.key("graph_info"), choices_);
      json.end_object();
    });
  }

  // Writes the members of a choice before "prompt_logprobs". The object stays open.
  void write_choice(JsonWriter& json, std::size_t index) {
    CompletionChoice& choice = choices_[index];
    json.object().key("index").value(index).key("text").value(choice.text).key("logprobs");
    choice.text.clear();
    if (style_.logprobs) {
      choice.columns.write(json);
    } else {
      json.null();
    }
    if (style_.token_ids) {
      write_ids(json.key("token_ids"), choice.ids);
      choice.ids.clear();
    }
  }
  void write_choice_end(JsonWriter& json, const CompletionChoice& choice) const {
    if (style_.hidden_states)
      write_last_hidden_state(json.key("hidden_states"), choice.hidden_states, style_.hidden_size);
    json.key("finish_reason").value_or_null(answer_finish_reason(choice.finish)).end_object();
  }

  CompletionStyle style_;
  std::string head_;  // the beginning of every JSON object that is sent, without its closing brace
  std::vector<CompletionChoice> choices_;
  JsonWriter chunk_;  // a member so that all chunks of a stream reuse its memory
  Usage usage_;
};

}  // namespace

std::unique_ptr<Answer> make_completion_answer(CompletionStyle style) {
  return std::make_unique<CompletionAnswer>(std::move(style));
}

}  // namespace tessera
