// The parts of a message's content: texts and images.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/images/image_input.h"

namespace tessera {

// An image's source: a text, or an object with "url" and "detail" ("low", "high" or "auto"). `param` names the field.
ApiResult<GivenImage> read_image_source(const Json& source, const std::string& param);

// A message's "content": a string, or a list of parts. Texts come as OpenAI's "text" or the Responses API's
// "input_text", images as "image_url" or "input_image"; without `images_allowed` they are refused. Returns what
// templates take (ChatMessages::list), and appends to `images`, which borrow from the message.
ApiResult<Json> read_content(const ApiFields& message, bool images_allowed, std::vector<GivenImage>& images);

// Put `text` before or behind a content, whatever its form.
void prepend_text(const std::string& text, Json& content);
void append_text(const std::string& text, Json& content);

}  // namespace tessera
