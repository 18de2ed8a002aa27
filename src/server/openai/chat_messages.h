// Reads the messages of a chat request, checks them, and returns the form that chat templates expect.
#pragma once

#include <vector>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/images/image_input.h"

namespace tessera {

struct ChatMessages {
  // A list of {"role", "content", …}. Arguments of tool calls are objects, or texts if they are not the JSON text of an
  // object (tools/call_arguments.h). In a message without images, the content is one string, which joins the text parts
  // by line breaks. In a message with images, the content is a list of {"type": "text", "text": …} and
  // {"type": "image"}.
  Json list = Json::array();
  std::vector<GivenImage> images{};  // in the order of the messages; borrowed from the request
};

// The kinds of messages that the model can read.
struct MessageKinds {
  bool developer = false;  // the template has the role "developer"; false: developer messages become system messages
  bool images = false;     // false: images are refused
};

// Reads a call's "arguments": an object, or a string, which OpenAI's clients send. Returns what shown_arguments()
// returns for a string, and an empty object if the call has no arguments.
ApiResult<Json> read_call_arguments(const ApiFields& call);

ApiResult<ChatMessages> read_messages(const ApiFields& body, const MessageKinds& kinds);

}  // namespace tessera
