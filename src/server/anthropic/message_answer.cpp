#include "tessera/server/anthropic/message_answer.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/server/anthropic/thinking_signature.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/usage.h"
#include "tessera/server/tools/call_arguments.h"

namespace tessera {
namespace {

struct Block {
  enum class Kind : std::uint8_t { kThinking, kText, kToolUse };
  Kind kind = Kind::kText;
  // In a stream, this is the text that is not sent yet. Otherwise it is the whole text. With kToolUse, it is the text
  // of a JSON object.
  std::string text{};
  std::string id{};    // set with kToolUse
  std::string name{};  // set with kToolUse
};

class MessageAnswer final : public Answer {
 public:
  explicit MessageAnswer(MessageStyle style) : style_(std::move(style)), parts_(style_.text) {}

  // Returns an internal error if a parser failed. Only parsers of plugins can fail, so the client is not at fault.
  Status failure() const override {
    return parts_.status().ok() ? ok_status() : internal_error(parts_.status().message());
  }

  void on_event(std::size_t, const RequestEvent& event, Completion* end, std::string& stream) override {
    if (event.token) {
      ++output_tokens_;
      if (parts_.in_reasoning()) ++thinking_tokens_;
    }
    add(parts_.push(event.text));
    if (event.finish != FinishReason::kNone) {
      add(parts_.finish());
      end_call(event.finish == FinishReason::kLength);
    }
    if (end != nullptr) {
      output_tokens_ = std::ssize(end->output_ids);
      cached_tokens_ = end->cached_tokens;
      drafts_ = end->drafts;
      matched_ = std::move(end->matched.text);
      finish_ = event.finish;
    }
    if (!style_.stream || !event_is_due(output_tokens_, style_.interval, event.finish)) return;
    begin(stream);
    send_blocks(stream);
    if (event.finish != FinishReason::kNone) close_block(stream);
  }

  bool keeps_alive() const override { return true; }
  std::string keep_alive() override {
    std::string stream;
    begin(stream);
    append(stream, "ping", [](JsonWriter&) {});
    return stream;
  }

  std::string last_events() override {
    std::string stream;
    append(stream, "message_delta", [&](JsonWriter& json) {
      write_stop(json.key("delta").object());
      json.end_object();
      write_counts(json.key("usage").object());
      json.end_object();
      write_edits(json);
    });
    return stream;
  }

  std::string stream_end() const override { return "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"; }
  std::string stream_failure(const ApiError& error) const override {
    return "event: error\ndata: " + error.to_json(ErrorShape::kAnthropic) + "\n\n";
  }

  std::string body() override {
    JsonWriter json;
    json.object();
    write_head(json);
    json.key("content").array();
    for (const Block& block : blocks_) write_block(json, block);
    json.end_array();
    write_stop(json);
    write_usage(json.key("usage"));
    write_edits(json);
    return json.end_object().take();
  }

 private:
  Block& block_of(Block::Kind kind) {
    if (!blocks_.empty() && blocks_.back().kind != kind) end_call();
    if (blocks_.empty() || blocks_.back().kind != kind) blocks_.push_back({.kind = kind});
    return blocks_.back();
  }

  void add(ChatPieces pieces) {
    // Elements without an id at the front of `pieces.calls` continue the call in the last block. They are handled
    // first, because their text comes before the reasoning and the content of `pieces`.
    auto call = pieces.calls.begin();
    for (; call != pieces.calls.end() && call->id.empty(); ++call) grow_call(call->arguments);
    if (style_.shows_thinking && !pieces.reasoning.empty()) block_of(Block::Kind::kThinking).text += pieces.reasoning;
    if (!pieces.content.empty()) block_of(Block::Kind::kText).text += pieces.content;
    for (; call != pieces.calls.end(); ++call) {
      if (!call->id.empty()) {
        end_call();
        call_.emplace();
        blocks_.push_back({.kind = Block::Kind::kToolUse, .id = std::move(call->id), .name = std::move(call->name)});
      }
      grow_call(call->arguments);
    }
  }

  void grow_call(std::string_view arguments) {
    if (!call_) return;  // a plugin's format goes on with a call behind other text, so the call's block has ended
    *call_ += arguments;
    blocks_.back().text += arguments;
  }

  // Ends the call in the last block, if there is one. A call counts only if its arguments are whole. The block of
  // a call with broken arguments is left out, so that no client runs a tool with input that the model did not finish. A
  // stream has sent the block's beginning already, so there only the stop reason tells. Clients run all calls of a
  // message or none, so one broken call counts for all.
  void end_call(bool cut_off = false) {
    if (!call_) return;
    const std::string arguments = *std::exchange(call_, std::nullopt);
    if (are_whole_arguments(arguments) && !(cut_off && arguments.empty())) {
      has_calls_ = true;
    } else if (style_.stream) {
      broke_ = true;
    } else {
      blocks_.pop_back();
    }
  }

  // Writes the members that a message has before its content.
  void write_head(JsonWriter& json) const {
    json.key("id").value(style_.id).key("type").value("message").key("role").value("assistant");
    json.key("model").value(style_.model);
  }

  // Writes why the message ended. The server runs no containers and no classifiers that refuse, so the members about
  // them are null.
  void write_stop(JsonWriter& json) const {
    json.key("stop_reason").value_or_null(stop_reason());
    json.key("stop_sequence");
    if (matched_) {
      json.value(*matched_);
    } else {
      json.null();
    }
    json.key("stop_details").null().key("container").null();
  }

  std::string_view stop_reason() const {
    if (finish_ == FinishReason::kNone) return "";
    if (finish_ == FinishReason::kLength)
      return style_.ends_with_context ? "model_context_window_exceeded" : "max_tokens";
    if (matched_) return "stop_sequence";
    return has_calls_ && !broke_ ? "tool_use" : "end_turn";
  }

  // Writes the usage of a message. message_delta has only the counts.
  void write_usage(JsonWriter& json) const {
    write_counts(json.object());
    json.key("cache_creation").object().key("ephemeral_1h_input_tokens").value(0);
    json.key("ephemeral_5m_input_tokens").value(0).end_object();
    json.key("inference_geo").null().key("service_tier").value("standard").end_object();
  }

  void write_counts(JsonWriter& json) const {
    json.key("input_tokens").value(style_.prompt_tokens - cached_tokens_);
    json.key("cache_creation_input_tokens").value(0);
    json.key("cache_read_input_tokens").value(cached_tokens_);
    json.key("output_tokens").value(output_tokens_);
    json.key("output_tokens_details").object().key("thinking_tokens").value(thinking_tokens_);
    write_draft_counts(json, drafts_);
    json.end_object();
    json.key("server_tool_use").null();
  }

  void write_edits(JsonWriter& json) const {
    if (!style_.lists_edits) return;
    json.key("context_management").object().key("applied_edits").array().end_array().end_object();
  }

  // Writes the type of a tool_use block and its members before the input. The model itself makes every call.
  static void write_call(JsonWriter& json, const Block& block) {
    json.value("tool_use").key("id").value(block.id).key("name").value(block.name);
    json.key("caller").object().key("type").value("direct").end_object();
  }

  void write_block(JsonWriter& json, const Block& block) const {
    json.object().key("type");
    switch (block.kind) {
      case Block::Kind::kText: json.value("text").key("text").value(block.text).key("citations").null(); break;
      case Block::Kind::kThinking:
        json.value("thinking").key("thinking").value(style_.omits_thinking ? std::string_view() : block.text);
        json.key("signature").value(signature_of_thinking(style_.omits_thinking ? block.text : std::string_view()));
        break;
      case Block::Kind::kToolUse:
        write_call(json, block);
        json.key("input").raw(block.text.empty() ? std::string_view("{}") : block.text);
        break;
    }
    json.end_object();
  }

  // Sends the message's beginning, once. The cached tokens are not known yet, so only message_delta has the whole
  // usage.
  void begin(std::string& stream) {
    if (std::exchange(begun_, true)) return;
    append(stream, "message_start", [&](JsonWriter& json) {
      write_head(json.key("message").object());
      json.key("content").array().end_array();
      write_stop(json);
      write_usage(json.key("usage"));
      json.end_object();
    });
    append(stream, "ping", [](JsonWriter&) {});
  }

  // Sends what was added to the blocks. The last block stays open, because it may grow.
  void send_blocks(std::string& stream) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (i > 0) close_block(stream);
      if (!open_) open_block(stream, blocks_[i]);
      send_delta(stream, blocks_[i]);
    }
    if (blocks_.size() > 1) blocks_.erase(blocks_.begin(), blocks_.end() - 1);
  }

  void open_block(std::string& stream, const Block& block) {
    open_ = block.kind;
    append(stream, "content_block_start", [&](JsonWriter& json) {
      json.key("index").value(index_).key("content_block").object().key("type");
      switch (block.kind) {
        case Block::Kind::kText: json.value("text").key("text").value(""); break;
        case Block::Kind::kThinking: json.value("thinking").key("thinking").value("").key("signature").value(""); break;
        case Block::Kind::kToolUse:
          write_call(json, block);
          json.key("input").object().end_object();
          break;
      }
      json.end_object();
    });
  }

  void send_delta(std::string& stream, Block& block) {
    if (block.text.empty()) return;
    switch (block.kind) {
      case Block::Kind::kText: append_delta(stream, "text_delta", "text", block.text); break;
      case Block::Kind::kToolUse: append_delta(stream, "input_json_delta", "partial_json", block.text); break;
      case Block::Kind::kThinking:
        if (style_.omits_thinking) {
          hidden_ += block.text;
        } else {
          append_delta(stream, "thinking_delta", "thinking", block.text);
        }
        break;
    }
    block.text.clear();
  }

  void close_block(std::string& stream) {
    if (!open_) return;
    if (*open_ == Block::Kind::kThinking)
      append_delta(stream, "signature_delta", "signature", signature_of_thinking(std::exchange(hidden_, {})));
    append(stream, "content_block_stop", [&](JsonWriter& json) { json.key("index").value(index_); });
    ++index_;
    open_.reset();
  }

  void append_delta(std::string& stream, std::string_view type, std::string_view key, std::string_view text) {
    append(stream, "content_block_delta", [&](JsonWriter& json) {
      json.key("index").value(index_).key("delta").object().key("type").value(type).key(key).value(text).end_object();
    });
  }

  template <class WriteMembers>
  void append(std::string& stream, std::string_view type, const WriteMembers& write_members) {
    event_.clear();
    event_.object().key("type").value(type);
    write_members(event_);
    event_.end_object();
    stream += "event: ";
    stream += type;
    stream += "\ndata: ";
    stream += event_.text();
    stream += "\n\n";
  }

  MessageStyle style_;
  ChatText parts_;
  std::vector<Block> blocks_;
  std::optional<std::string> matched_;  // the stop sequence that ended the text
  std::optional<std::string> call_;  // the arguments of the call in the last block so far; unset: it has no open call
  bool has_calls_ = false;           // a call with whole arguments has ended
  FinishReason finish_ = FinishReason::kNone;
  std::int64_t output_tokens_ = 0;
  std::int64_t thinking_tokens_ = 0;
  std::int64_t cached_tokens_ = 0;
  DraftTotals drafts_{};
  // State of a stream:
  bool broke_ = false;  // a call whose arguments are not whole has ended
  bool begun_ = false;
  int index_ = 0;                    // index of the open block, or of the next block if none is open
  std::optional<Block::Kind> open_;  // the kind of the open block; unset: no block is open
  std::string hidden_;               // thinking that goes into the signature
  JsonWriter event_;                 // a member so that all events of a stream reuse its memory
};

}  // namespace

std::unique_ptr<Answer> make_message_answer(MessageStyle style) {
  return std::make_unique<MessageAnswer>(std::move(style));
}

}  // namespace tessera
