// The answer to /v1/responses: one object, or numbered events. It turns a model's text into output items, and stores
// the response if it is to be kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/server/api_job.h"
#include "tessera/server/fields/usage.h"
#include "tessera/server/openai/chat_text.h"
#include "tessera/server/responses/custom_input.h"
#include "tessera/server/responses/output_item.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/responses/response_tools.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

// Says how a response is stored.
struct ResponseKeeping {
  ResponseStore* store = nullptr;  // borrowed; null: the response is not stored
  std::string owner{};
  std::string input{};  // the items of the request, a JSON list
  std::shared_ptr<const ConversationTurn> before{};
  bool background = false;  // the response is stored even while it runs, and even if it fails
};

struct ResponseStyle {
  std::string id;
  std::string head;  // the beginning of the response object, left open (response_head.h)
  ChatTextStyle text{};
  std::vector<ResponseTool> tools{};
  ItemStyle items{};
  bool stream = false;
  bool logprobs = false;
  std::int64_t interval = 1;  // tokens between two events
  std::int64_t prompt_tokens = 0;
  const Tokenizer* tokenizer = nullptr;  // borrowed
  ResponseKeeping keeping{};
};

class ResponseAnswer : public Answer {
 public:
  explicit ResponseAnswer(ResponseStyle style);

  // Returns the first events of a stream. Returns "" if the stream has begun already, or if the answer is not streamed.
  std::string begin();
  // Stores the response in its present state. `events`: the log of its stream, or null.
  ApiStatus keep_running(std::shared_ptr<EventLog> events);
  // Returns the response object in its present state.
  std::string current(std::string_view status) const;

  Status failure() const override;
  void on_event(std::size_t index, const RequestEvent& event, Completion* end, std::string& stream) override;
  std::string last_events() override;
  std::string stream_end() const override { return ""; }
  bool keeps_alive() const override { return true; }
  // Returns the first events if the stream has not begun, else a comment line, which clients ignore.
  std::string keep_alive() override { return begun_ ? ": the model works\n\n" : begin(); }
  std::string stream_failure(const ApiError& error) const override;
  std::string cancelled() override;
  std::string body() override;
  Usage usage() const override { return usage_; }

 private:
  using Kind = OutputItem::Kind;

  template <class Write>
  void append_event(std::string& stream, std::string_view type, const Write& write);
  template <class Write>
  void append_item_event(std::string& stream, std::string_view type, const Write& write);
  void add(ChatPieces pieces, std::string& stream);
  void add_call(const ToolCallDelta& delta, std::string& stream);
  void add_logprobs(const TokenLogprobs& token);
  void open(OutputItem item, std::string& stream);
  void begin_part(std::string& stream);
  void send_delta(std::string& stream);
  void close(std::string_view status, std::string& stream);
  void end_part(std::string& stream);
  void end(std::string& stream);
  void keep(std::string body, bool running, bool complete) const;
  void write_response(JsonWriter& json, std::string_view status, const ApiError* error = nullptr) const;

  ResponseStyle style_;
  ChatText parts_;
  std::optional<OutputItem> item_{};  // the open item, which is still growing; unset: there is none
  int call_index_ = -1;               // ChatText's index of the open call
  CustomInput input_;                 // input of the open custom call
  std::string output_;                // the ended items, as the elements of a JSON list
  std::vector<std::string> item_ids_;
  std::string logprobs_;  // log-probabilities of tokens whose text has not come yet, as elements of a JSON list
  FinishReason finish_ = FinishReason::kNone;
  Usage usage_{};
  bool begun_ = false;
  bool ended_ = false;
  std::int64_t sequence_ = 0;
  std::shared_ptr<EventLog> events_{};
  JsonWriter json_;  // a member so that all events of a stream reuse its memory
};

}  // namespace tessera
