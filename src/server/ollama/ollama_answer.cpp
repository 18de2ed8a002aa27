#include "tessera/server/ollama/ollama_answer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/usage.h"
#include "tessera/server/openai/token_text.h"
#include "tessera/server/tools/call_arguments.h"

namespace tessera {
namespace {

std::int64_t nanoseconds(double ms) { return std::llround(ms * 1e6); }

class OllamaAnswer final : public Answer {
 public:
  explicit OllamaAnswer(OllamaStyle style) : style_(std::move(style)), parts_(style_.text) {
    JsonWriter head;
    head.object().key("model").value(style_.model).key("created_at").value(iso_time());
    head_ = head.take();
    if (style_.is_load) reason_ = "load";
  }

  Status failure() const override {
    // Returns an internal error if a parser failed. Only parsers of plugins can fail, so the client is not at fault.
    return parts_.status().ok() ? ok_status() : internal_error(parts_.status().message());
  }

  void on_event(std::size_t, const RequestEvent& event, Completion* end, std::string& stream) override {
    if (event.token) ++tokens_;
    if (event.logprobs) add_logprobs(*event.logprobs);
    add(parts_.push(event.text));
    if (event.finish != FinishReason::kNone) {
      add(parts_.finish());
      end_call();
      reason_ = answer_finish_reason(event.finish);
    }
    if (end != nullptr) end_ = std::move(*end);
    if (!style_.stream || !event_is_due(tokens_, style_.interval, event.finish) || is_empty()) return;
    line_.clear();
    write_text(line_.raw(head_));
    line_.key("done").value(false);
    stream += line_.end_object().text();
    stream += '\n';
  }

  std::string_view stream_type() const override { return "application/x-ndjson"; }
  std::string last_events() override { return body() + '\n'; }
  std::string stream_end() const override { return ""; }
  std::string stream_failure(const ApiError& error) const override { return error.to_json(ErrorShape::kOllama) + '\n'; }

  std::string body() override {
    JsonWriter json;
    write_text(json.raw(head_));
    json.key("done").value(true).key("done_reason").value(reason_);
    if (style_.is_load) return json.end_object().take();
    const double decode_ms = end_.time_to_first_token_ms > 0 ? end_.total_ms - end_.time_to_first_token_ms : 0;
    const double prompt_ms = std::max(end_.time_to_first_token_ms - end_.queue_ms, 0.0);
    json.key("total_duration").value(nanoseconds(end_.total_ms)).key("load_duration").value(0);
    json.key("prompt_eval_count").value(end_.prompt_tokens);
    json.key("prompt_eval_duration").value(nanoseconds(prompt_ms));
    json.key("eval_count").value(end_.output_ids.size()).key("eval_duration").value(nanoseconds(decode_ms));
    return json.end_object().take();
  }

 private:
  void add(ChatPieces pieces) {
    thinking_ += pieces.reasoning;
    content_ += pieces.content;
    for (ToolCallDelta& piece : pieces.calls) {
      if (piece.index != call_.index) end_call();
      call_.index = piece.index;
      if (!piece.name.empty()) call_.name = std::move(piece.name);
      if (!piece.id.empty()) call_.id = std::move(piece.id);
      call_.arguments += piece.arguments;
    }
  }

  // Moves the current call from `call_` to `calls_`. Drops a call that was cut off, because its arguments are not a
  // JSON object and calls are sent only whole.
  void end_call() {
    ToolCallDelta call = std::exchange(call_, {.index = -1});
    if (call.name.empty()) return;
    if (call.arguments.empty()) call.arguments = "{}";
    if (are_whole_arguments(call.arguments)) calls_.push_back(std::move(call));
  }

  bool is_empty() const { return thinking_.empty() && content_.empty() && calls_.empty() && logprobs_.text().empty(); }

  // Writes the text and the calls that were not written yet, and clears them.
  void write_text(JsonWriter& json) {
    if (style_.chat) json.key("message").object().key("role").value("assistant");
    json.key(style_.chat ? "content" : "response").value(content_);
    if (!thinking_.empty()) json.key("thinking").value(thinking_);
    if (!calls_.empty()) {
      json.key("tool_calls").array();
      for (const ToolCallDelta& call : calls_) {
        json.object().key("id").value(call.id).key("function").object().key("index").value(call.index);
        json.key("name").value(call.name).key("arguments").raw(call.arguments).end_object().end_object();
      }
      json.end_array();
    }
    if (style_.chat) json.end_object();
    if (!logprobs_.text().empty()) json.key("logprobs").raw('[' + logprobs_.take() + ']');
    content_.clear();
    thinking_.clear();
    calls_.clear();
  }

  void write_token(JsonWriter& json, const TokenLogprob& token) const {
    json.object().key("token").value(token_text(style_.tokenizer, token.id)).key("logprob").value(token.logprob);
    json.key("bytes").array();
    for (const char byte : token_bytes(style_.tokenizer, token.id)) json.value(static_cast<unsigned char>(byte));
    json.end_array();
  }
  void add_logprobs(const TokenLogprobs& token) {
    write_token(logprobs_, token.token);
    if (!token.top.empty()) {
      logprobs_.key("top_logprobs").array();
      for (const TokenLogprob& top : token.top) {
        write_token(logprobs_, top);
        logprobs_.end_object();
      }
      logprobs_.end_array();
    }
    logprobs_.end_object();
  }

  OllamaStyle style_;
  ChatText parts_;
  std::string head_;  // the beginning of every JSON object that is sent; it has no closing brace
  // In a stream, this is the text that is not sent yet. Otherwise it is the whole text.
  std::string thinking_;
  std::string content_;
  std::vector<ToolCallDelta> calls_;
  JsonWriter logprobs_;              // without the enclosing brackets
  ToolCallDelta call_{.index = -1};  // the call whose arguments may still continue
  std::int64_t tokens_ = 0;
  std::string_view reason_;
  Completion end_{};
  JsonWriter line_;  // a member so that all lines of a stream reuse its memory
};

}  // namespace

std::unique_ptr<Answer> make_ollama_answer(OllamaStyle style) {
  return std::make_unique<OllamaAnswer>(std::move(style));
}

}  // namespace tessera
