// An item of a response's output, and its JSON: reasoning, a message, or a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/server/fields/json_writer.h"

namespace tessera {

struct OutputItem {
  enum class Kind : std::uint8_t { kReasoning, kMessage, kFunctionCall, kCustomCall };

  Kind kind = Kind::kMessage;
  std::string id;
  std::string text{};             // the reasoning, the message, the arguments, or the input
  std::size_t sent = 0;           // bytes of `text` that a stream has sent
  std::string call_id{};          // id of a call
  std::string name{};             // name of a call's function
  std::string space{};            // namespace of a call's function; "": none
  std::string logprobs{};         // log-probabilities of a message's tokens, as the elements of a JSON list
  std::size_t sent_logprobs = 0;  // bytes of `logprobs` that a stream has sent

  bool is_call() const { return kind == Kind::kFunctionCall || kind == Kind::kCustomCall; }
};

// How items are written as JSON.
struct ItemStyle {
  bool summary = false;  // reasoning is written as the item's summary; otherwise as its content
  bool encoded = false;  // reasoning is also written as encrypted_content
};

// Returns the id of a new item.
std::string make_item_id(OutputItem::Kind kind);

// Writes the item as it begins: in progress, and without its text.
void write_begun_item(JsonWriter& json, const OutputItem& item);
// Writes the item as it ended. `status` is "completed" or "incomplete".
void write_ended_item(JsonWriter& json, const OutputItem& item, const ItemStyle& style, std::string_view status);

// Writes the content part with the text of a reasoning item or of a message.
void write_part(JsonWriter& json, const OutputItem& item, const ItemStyle& style, std::string_view text,
                std::string_view logprobs);

}  // namespace tessera
