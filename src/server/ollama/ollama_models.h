// Answers the requests of Ollama's clients about models: /api/tags, /api/ps, /api/show, /api/version, and /.
#pragma once

#include <string>
#include <string_view>

#include "tessera/server/api_result.h"
#include "tessera/server/http/http.h"
#include "tessera/server/served_model.h"

namespace tessera {

// The version of Ollama that these routes follow. Clients compare it with the minimum version that they need.
inline constexpr std::string_view kOllamaVersion = "0.13.0";

// Returns the body of GET /api/tags, which lists the model under each of its names.
std::string ollama_tags_body(const ServedModel& model);
// Returns the body of GET /api/ps, which lists the same models, since they are always loaded.
std::string ollama_ps_body(const ServedModel& model);
// Returns the body of GET /api/version.
std::string ollama_version_body();
// Answers POST /api/show: takes {"model"}, and returns details, sizes and "capabilities": completion, tools, thinking,
// vision or embedding.
ApiResult<std::string> ollama_show_body(const ServedModel& model, std::string_view body);

// Returns whether a request for / comes from a browser. Other clients request / to see whether Ollama runs.
bool asks_for_page(const HttpRequest& request);
HttpResponse ollama_is_running();

}  // namespace tessera
