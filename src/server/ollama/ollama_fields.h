// Fields that Ollama's requests share: the model's name, options, format and think.
#pragma once

#include <optional>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/sampling_fields.h"
#include "tessera/server/served_model.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {

// Checks the field "model", or "name" where a request has none. A tag ":latest" may be left out or added. Errors: 400
// without a name, 404 for another model.
ApiStatus check_ollama_name(const ServedModel& model, const Json& body);

// Reads "options" and "format". Options of Ollama that the request leaves out come from generation_config.json, like
// the fields of other protocols.
ApiResult<OutputFields> read_ollama_output(const ApiFields& fields, const ServedModel& model);

// Reads "think" into variables of the template: enable_thinking and reasoning_effort. Errors: thinking of a model that
// has none, and an effort that the template does not know.
ApiResult<Json> read_think(const ApiFields& fields, const ServedModel& model, const ChatTemplate& chat);

}  // namespace tessera
