// Options of the server's protocols.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/server/http/http.h"

namespace tessera {

struct ServerOptions {
  HttpOptions http{};
  // Where there are any, each request but those of / and /health needs "Authorization: Bearer <one of them>".
  std::vector<std::string> api_keys{};
  std::string served_model_name{};  // "": the model path as given
  // Further names that requests may call the model by and that /v1/models lists; answers have the first name.
  std::vector<std::string> served_aliases{};
  std::string chat_template{};            // a file, or the template itself; "": the model's own
  std::string tool_call_parser{};         // "": guessed from the template, or generic; "none": tools are refused
  std::string reasoning_parser{};         // "": guessed from the template; "none": reasoning is content
  std::string metrics_style = "sglang";   // whose names /metrics has, or "vllm"
  bool allow_unknown_fields = false;      // in requests: ignored
  std::string json_whitespace{};          // GrammarOptions::json_whitespace; "": compact
  bool log_requests = false;              // one line each
  std::int64_t stream_interval = 1;       // tokens from one event of a stream to the next; at least 1
  std::int64_t max_images = 16;           // of a prompt
  bool allow_image_urls = false;          // images may be named by http(s) URLs, which are fetched
  std::int64_t request_memory_bytes = 0;  // what requests may hold together; 0: MemoryBudget::default_bytes
  double last_answers_s = 1;              // that a server whose engines have failed still says so
};

}  // namespace tessera
