// Checks the items of a Responses conversation and turns them into the messages that chat templates expect. Consecutive
// reasoning, text and calls of the assistant become one message.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>

#include "tessera/base/json.h"
#include "tessera/server/api_result.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/chat_messages.h"

namespace tessera {

class ItemReader {
 public:
  explicit ItemReader(const MessageKinds& kinds) : kinds_(kinds) {}

  // Appends a message of the role "system" or "developer".
  void add_instructions(std::string text);
  // Appends the items of a list. Images borrow from the list. `param` is the list's path in errors.
  ApiStatus read(const Json& items, const std::string& param);
  // Returns the messages. Call it last.
  ChatMessages take();

 private:
  ApiStatus read_item(const ApiFields& item, const std::string& type);
  ApiStatus read_message(const ApiFields& item);
  ApiStatus read_call(const ApiFields& item, bool custom);
  ApiStatus read_output(const ApiFields& item);
  ApiStatus read_reasoning(const ApiFields& item);
  ApiStatus read_compaction(const ApiFields& item);
  // Returns whether the assistant's message has text or calls already.
  bool assistant_has_more() const;
  Json& assistant();
  void end_assistant();

  MessageKinds kinds_;
  ChatMessages out_;
  Json assistant_;                         // the assistant's message so far, without its calls; null: none
  Json assistant_calls_ = Json::array();   // the calls of this message
  std::unordered_set<std::string> calls_;  // ids of the calls so far
};

// Returns the type of an item. Returns "message" for an item that has a role but no type, and "" for other items
// without a type.
std::string_view item_type(const Json& item);

// Returns an item as the store keeps it: with an id, and the content of a message as a list of parts. An item that is
// in this form already is returned as it is.
Json kept_item(const Json& item);
// Returns the items of a list as the store keeps them, as a JSON list.
std::string kept_items(const Json& items);

}  // namespace tessera
