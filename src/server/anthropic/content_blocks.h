// Reads the text and image blocks of a message's content into the form that chat templates take.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/images/image_input.h"
#include "tessera/server/openai/turn_content.h"

namespace tessera {

// Calls `take` with each block of the list `blocks` and the block's type. `param` is the list's path. Errors: the
// errors of `take`, and one for an element that is not an object with a "type".
ApiStatus each_block(const Json& blocks, const std::string& param,
                     const std::function<ApiStatus(const ApiFields& block, const std::string& type)>& take);

// Returns whether a message has the role `role`. Returns false for a malformed message.
bool is_of_role(const Json& message, std::string_view role);

// Reads the string member `key` of a block. A missing member is an error.
ApiResult<std::string> required_text(const ApiFields& block, std::string_view key);

// Returns whether a block records what Anthropic's own servers did in an earlier turn (server_tool_use,
// web_search_tool_result, redacted_thinking, …). The server accepts such blocks and does not show them to the model.
bool is_server_block(std::string_view type);

// Reads a block of type "text", "document", "search_result", "compaction" or "image" into `content`. Appends images to
// `images`. These images borrow from the request. An image is an error unless `images_allowed`. A block of any other
// type than these five is an error. The message of this error lists the accepted types, and then `others`, the types
// that only the caller accepts.
ApiStatus add_block(const ApiFields& block, std::string_view type, std::string_view others, bool images_allowed,
                    std::vector<GivenImage>& images, TurnContent& content);

}  // namespace tessera
