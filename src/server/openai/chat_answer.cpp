#include "tessera/server/openai/chat_answer.h"

#include <span>
#include <utility>
#include <vector>

#include "tessera/server/fields/json_writer.h"
#include "tessera/server/openai/token_extras.h"
#include "tessera/server/report/graph_info.h"

namespace tessera {
namespace {

struct ChatChoice {
  explicit ChatChoice(const ChatTextStyle& style) : parts(style) {}
  ChatText parts;
  // In a stream, the members down to `logprobs` hold only the output that is not sent yet. Otherwise they hold the
  // whole output.
  std::string reasoning{};
  std::string content{};
  std::vector<ToolCallDelta> calls{};
  JsonWriter logprobs{};  // without the enclosing brackets
  bool has_calls = false;
  bool begun = false;  // the chunk with the role was sent
  FinishReason finish = FinishReason::kNone;
  Usage usage{};
  GraphInfo graph_info{};
  // Only for an answer that is not streamed:
  std::vector<TokenId> ids{};
  std::vector<TokenLogprobs> prompt_logprobs{};
  std::vector<float> hidden_states{};
};

void write_call(JsonWriter& json, const ToolCallDelta& call, bool with_index) {
  json.object();
  if (with_index) json.key("index").value(call.index);
  if (!call.id.empty()) json.key("id").value(call.id).key("type").value("function");
  json.key("function").object();
  if (!call.name.empty()) json.key("name").value(call.name);
  json.key("arguments").value(call.arguments).end_object().end_object();
}

class ChatAnswer : public Answer {
 public:
  explicit ChatAnswer(ChatStyle style) : style_(std::move(style)) {
    JsonWriter head;
    head.object().key("id").value(style_.id).key("object");
    head.value(style_.stream.stream ? "chat.completion.chunk" : "chat.completion");
    head.key("created").value(unix_time()).key("model").value(style_.model);
    if (!style_.fingerprint.empty()) head.key("system_fingerprint").value(style_.fingerprint);
    head_ = head.take();
    for (int c = 0; c < style_.n; ++c) {
      ChatChoice& choice = choices_.emplace_back(style_.text);
      choice.usage.prompt_tokens = style_.prompt_tokens;
      choice.usage.image_tokens = style_.image_tokens;
      choice.content = style_.echo;
    }
  }

  Status failure() const override {
    // Only a plugin's parser can fail. If it fails, the answer reports an internal error, because the plugin is at
    // fault and not the client.
    for (const ChatChoice& choice : choices_) {
      if (!choice.parts.status().ok()) return internal_error(choice.parts.status().message());
    }
    return ok_status();
  }

  void on_event(std::size_t index, const RequestEvent& event, Completion* end, std::string& stream) override {
    ChatChoice& choice = choices_[index];
    if (event.token) {
      ++choice.usage.completion_tokens;
      if (choice.parts.in_reasoning()) ++choice.usage.reasoning_tokens;
    }
    if (event.logprobs) write_token_logprobs(choice.logprobs, *event.logprobs, style_.tokenizer, style_.tokens_as_ids);
    add(choice, choice.parts.push(event.text));
    choice.finish = event.finish;
    if (choice.finish != FinishReason::kNone) add(choice, choice.parts.finish());
    if (end != nullptr) {
      choice.usage.completion_tokens = std::ssize(end->output_ids);
      choice.usage.cached_tokens = end->cached_tokens;
      choice.usage.drafts = end->drafts;
      choice.graph_info = GraphInfo::of(*end);
      if (style_.token_ids) choice.ids = std::move(end->output_ids);
      choice.prompt_logprobs = std::move(end->prompt_logprobs);
      choice.hidden_states = std::move(end->hidden_states);
    }
    if (style_.stream.stream && event_is_due(choice.usage.completion_tokens, style_.stream.interval, choice.finish))
      append_chunks(index, stream);
  }

  std::optional<JsonParts> large_body() override {
    return style_.prompt_logprobs || style_.hidden_states ? std::optional(parts()) : std::nullopt;
  }

  std::string last_events() override {
    if (!style_.stream.include_usage) return "";
    JsonWriter json;
    json.raw(head_).key("choices").array().end_array().key("usage");
    write_usage(json, usage());
    return server_sent_event(json.end_object().take());
  }

  std::string body() override { return parts().all(); }

  // Returns the token counts of all choices together. The prompt counts once. Only the first choice's cached tokens
  // count, because the later choices find the prompt that the first choice has put into the cache.
  Usage usage() const override {
    Usage usage{.prompt_tokens = style_.prompt_tokens,
                .cached_tokens = choices_.front().usage.cached_tokens,
                .image_tokens = style_.image_tokens};
    for (const ChatChoice& choice : choices_) {
      usage.completion_tokens += choice.usage.completion_tokens;
      usage.reasoning_tokens += choice.usage.reasoning_tokens;
      usage.drafts.add(choice.usage.drafts);
    }
    return usage;
  }

 private:
  // Returns the body of an answer that is not streamed.
  JsonParts parts() {
    JsonParts parts;
    parts.once([this](JsonWriter& json) { json.raw(head_).key("choices").array(); });
    parts.each(choices_.size(), [this](JsonWriter& json, std::size_t i) { write_choice(json, i); });
    parts.once([this](JsonWriter& json) {
      json.end_array().key("usage");
      write_usage(json, usage());
      if (style_.prompt_logprobs) json.key("prompt_logprobs");
    });
    if (style_.prompt_logprobs) add_prompt_logprobs(parts, choices_.front().prompt_logprobs, style_.tokenizer);
    return parts.once([this](JsonWriter& json) {
      if (style_.token_ids) write_ids(json.key("prompt_token_ids"), style_.prompt_ids);
      if (style_.prompt_text) json.key("prompt_text").value(*style_.prompt_text);
      if (style_.graph_info) write_graph_infos(json.key("graph_info"), choices_);
      json.end_object();
    });
  }

  void write_choice(JsonWriter& json, std::size_t i) {
    ChatChoice& choice = choices_[i];
    json.object().key("index").value(i).key("message").object();
    json.key("role").value("assistant").key("content");
    if (choice.has_calls) {
      json.value_or_null(choice.content);
    } else {
      json.value(choice.content);
    }
    json.key("refusal").null().key("annotations").array().end_array();
    if (!style_.text.reasoning_parser.empty() && style_.include_reasoning)
      json.key("reasoning_content").value_or_null(choice.reasoning);
    if (choice.has_calls) {
      json.key("tool_calls").array();
      for (const ToolCallDelta& call : choice.calls) write_call(json, call, /*with_index=*/false);
      json.end_array();
    }
    json.end_object();
    write_extras(json, choice);
    write_end(json, choice);
  }

  // Writes a choice's additional members. Only for an answer that is not streamed.
  void write_extras(JsonWriter& json, const ChatChoice& choice) const {
    if (style_.token_ids) write_ids(json.key("token_ids"), choice.ids);
    if (style_.choices_have_prompt_ids) write_ids(json.key("prompt_token_ids"), style_.prompt_ids);
    if (style_.hidden_states)
      write_last_hidden_state(json.key("hidden_states"), choice.hidden_states, style_.hidden_size);
  }

  void add(ChatChoice& choice, ChatPieces pieces) const {
    if (style_.include_reasoning) choice.reasoning += pieces.reasoning;
    choice.content += pieces.content;
    choice.has_calls = choice.has_calls || !pieces.calls.empty();
    for (ToolCallDelta& piece : pieces.calls) {
      const bool known = !choice.calls.empty() && choice.calls.back().index == piece.index;
      if (known) {
        choice.calls.back().arguments += piece.arguments;
      } else {
        choice.calls.push_back(std::move(piece));
      }
    }
  }

  // Writes what follows a choice's message or delta, whose object is already closed.
  void write_end(JsonWriter& json, ChatChoice& choice) const {
    json.key("logprobs");
    if (style_.logprobs) {
      json.object().key("content").raw('[' + choice.logprobs.take() + ']').key("refusal").null().end_object();
    } else {
      json.null();
    }
    const bool called = choice.has_calls && choice.finish == FinishReason::kStop;
    json.key("finish_reason").value_or_null(called ? "tool_calls" : answer_finish_reason(choice.finish));
    json.end_object();
  }

  void append_chunks(std::size_t index, std::string& stream) {
    ChatChoice& choice = choices_[index];
    const FinishReason finish = std::exchange(choice.finish, FinishReason::kNone);
    if (!choice.begun) {
      choice.begun = true;
      JsonWriter logprobs = std::exchange(choice.logprobs, {});
      append_chunk(index, stream,
                   [](JsonWriter& delta) { delta.key("role").value("assistant").key("content").value(""); });
      choice.logprobs = std::move(logprobs);
    }
    if (!choice.reasoning.empty() || !choice.content.empty() || !choice.calls.empty()) {
      append_chunk(index, stream, [&](JsonWriter& delta) { write_pieces(delta, choice); });
    }
    if (finish == FinishReason::kNone) return;
    choice.finish = finish;
    append_chunk(index, stream, [](JsonWriter&) {});
  }

  static void write_pieces(JsonWriter& delta, ChatChoice& choice) {
    if (!choice.reasoning.empty()) delta.key("reasoning_content").value(choice.reasoning);
    if (!choice.content.empty()) delta.key("content").value(choice.content);
    choice.reasoning.clear();
    choice.content.clear();
    if (choice.calls.empty()) return;
    delta.key("tool_calls").array();
    for (const ToolCallDelta& call : choice.calls) write_call(delta, call, /*with_index=*/true);
    delta.end_array();
    choice.calls.clear();
  }

  template <class WriteDelta>
  void append_chunk(std::size_t index, std::string& stream, const WriteDelta& write_delta) {
    ChatChoice& choice = choices_[index];
    JsonWriter& json = chunk_;
    json.clear();
    json.raw(head_).key("choices").array().object().key("index").value(index).key("delta").object();
    write_delta(json);
    write_end(json.end_object(), choice);
    json.end_array();
    if (style_.stream.continuous_usage_stats) {
      write_usage(json.key("usage"), choice.usage);
    } else if (style_.stream.include_usage) {
      json.key("usage").null();
    }
    if (style_.graph_info && choice.finish != FinishReason::kNone)
      write_graph_infos(json.key("graph_info"), std::span(choices_).subspan(index, 1), index);
    append_server_sent_event(stream, json.end_object().text());
  }

  ChatStyle style_;
  std::string head_;  // the beginning of every JSON object that is sent, without its closing brace
  std::vector<ChatChoice> choices_;
  JsonWriter chunk_;  // a member so that all chunks of a stream reuse its memory
};

}  // namespace

std::unique_ptr<Answer> make_chat_answer(ChatStyle style) { return std::make_unique<ChatAnswer>(std::move(style)); }

}  // namespace tessera
