// The messages of a chat request, checked and brought into the form that chat templates expect.
#pragma once

#include <vector>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/images/image_input.h"

namespace tessera {

struct ChatMessages {
  // A list of {"role", "content", …}. The arguments of tool calls are objects. Contents are strings (text parts are
  // joined by line breaks); those with images are lists of {"type": "text", "text": …} and {"type": "image"}.
  Json list = Json::array();
  std::vector<GivenImage> images{};  // in order; they borrow from the request
};

// What the model can be told.
struct MessageKinds {
  bool developer = false;  // the template has a role "developer"; otherwise those messages are the system's
  bool images = false;     // otherwise they are refused
};

ApiResult<ChatMessages> read_messages(const ApiFields& body, const MessageKinds& kinds);

}  // namespace tessera
