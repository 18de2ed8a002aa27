// Reads the parts of a message's content, which are texts and images.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/images/image_input.h"

namespace tessera {

// Reads an image's source: a text, or an object with "url" and "detail" ("low", "high" or "auto"). `param` names the
// field in errors.
ApiResult<GivenImage> read_image_source(const Json& source, const std::string& param);

// Reads the member `key` of a message: a string, or a list of parts. A text part is OpenAI's "text" or the Responses
// API's "input_text" and "output_text". An image part is "image_url" or "input_image". Images are refused unless
// `images_allowed`. Returns the form that templates take (ChatMessages::list). Appends the images to `images`. The
// images borrow from the message.
ApiResult<Json> read_content(const ApiFields& message, bool images_allowed, std::vector<GivenImage>& images,
                             std::string_view key = "content");

// Returns a content part with the text: {"type": "text", "text": …}.
Json text_part(std::string text);

// Add `text` before or after a message's content, which is a string or a list of parts.
void prepend_text(const std::string& text, Json& content);
void append_text(const std::string& text, Json& content);

}  // namespace tessera
