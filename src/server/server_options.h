// The options of a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/server/events/kv_events_options.h"
#include "tessera/server/http/http.h"
#include "tessera/server/trace/trace_options.h"

namespace tessera {

struct ServerOptions {
  HttpOptions http{};
  // Keys of clients. If there are any, a request needs one, except on routes with RouteAccess::kOpen, such as /health.
  std::vector<std::string> api_keys{};
  // Keys of administrators. If there are any, a request to an administrative route needs one. An administrator's key
  // also opens all other routes.
  std::vector<std::string> admin_api_keys{};
  std::string served_model_name{};  // "": the model path as given
  // Further names for the model, accepted in requests and listed by /v1/models. Answers have the first name.
  std::vector<std::string> served_aliases{};
  std::string chat_template{};            // the file or the text of a template; "": the model's own template
  std::string tool_call_parser{};         // "": guessed from the template, else "generic"; "none": tools are refused
  std::string reasoning_parser{};         // "": guessed from the template; "none": reasoning stays in the content
  std::string metrics_style = "sglang";   // names of the metrics: "sglang" or "vllm"
  bool allow_unknown_fields = false;      // unknown fields of requests are ignored
  std::string json_whitespace{};          // GrammarOptions::json_whitespace; "": compact
  KvEventsOptions kv_events{};            // how events of the prefix caches are published
  TraceOptions traces{};                  // the collector that gets a span for each request
  bool log_requests = false;              // logs one line for each request
  std::string access_log{};               // file that gets a line for each request; "-": standard error; "": none
  std::int64_t stream_interval = 1;       // tokens between two events of a stream; at least 1
  std::int64_t max_images = 16;           // maximum number of images in a prompt
  bool allow_image_urls = false;          // images may be http(s) URLs, which the server fetches
  std::int64_t request_memory_bytes = 0;  // limit for all requests together; 0: MemoryBudget::default_bytes
  // Limits of the store of /v1/responses (response_store.h). If stored_responses is 0, nothing is stored.
  std::int64_t stored_response_bytes = std::int64_t{256} << 20;
  std::int64_t stored_responses = 10'000;
  double stored_response_age_s = 30.0 * 86400;
  // The folder of uploaded files and batches (file_folder.h), and the limit in bytes for all files together. If the
  // folder is "", the server has neither files nor batches.
  std::string file_folder{};
  std::int64_t file_bytes = std::int64_t{16} << 30;
  // Requests may load adapters only from this folder or below it. If it is "", requests may load adapters from
  // anywhere.
  std::string adapter_folder{};
  // Seconds for which the server still answers, with the error, after all engines have failed.
  double last_answers_s = 1;
};

}  // namespace tessera
