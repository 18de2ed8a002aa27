// Fields that Ollama's requests share: the model's name, options, format and think.
#pragma once

#include <optional>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/sampling_fields.h"
#include "tessera/server/served_model.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {

// Checks what all requests share. The field "model" must name the model. A request without "model" may have "name"
// instead. The tag ":latest" may be added to the model's name. `can`, unless null, checks that the model can do what
// the route does. `object` is one bit of request_object (request_fields.h), and decides which members are accepted.
// Errors: 400 if the request names no model, 404 if it names another model, and the errors of `can` and
// check_request_fields().
ApiStatus check_ollama_request(const ServedModel& model, const ApiFields& fields, std::uint32_t object,
                               ApiStatus (ServedModel::*can)() const = nullptr);

// Reads "options" and "format". Ollama options that the request leaves out come from generation_config.json, like the
// fields of other protocols.
ApiResult<OutputFields> read_ollama_output(const ApiFields& fields, const ServedModel& model);

// Reads "think" into the template's variables enable_thinking and reasoning_effort. Errors: the request asks for
// thinking, but the model has no reasoning parser. Or the request names an effort, but the template has neither
// variable.
ApiResult<Json> read_think(const ApiFields& fields, const ServedModel& model, const ChatTemplate& chat);

}  // namespace tessera
