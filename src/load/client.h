// Sends requests for completions to a server over HTTP, at given times or after other requests have ended, and reads
// the streamed answers. All work is done on the calling thread. Only client.cpp uses libcurl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/load/latency.h"

namespace tessera {

// Requests for completions (POST /v1/completions) whose answers are streamed.
struct ClientLoad {
  std::span<const double> send_at_s;  // [requests]: seconds from the run's start, or from the end of request after[i]
  // [requests] or empty. after[i] is the index of the request that must end before request i is sent, or -1 if request
  // i waits for no other request. after[i] is less than i.
  std::span<const std::ptrdiff_t> after = {};
  // Makes the body of request `index` directly before the request is sent. `records` [requests] holds the results
  // of all requests so far.
  std::function<std::string(std::size_t index, std::span<const RequestRecord> records)> body;
  bool keep_ids = false;             // whether to fill RequestRecord::output_ids
  std::int64_t max_concurrency = 0;  // simultaneous requests; 0: no limit
  std::function<void(std::size_t index)> on_end = {};
};

struct ClientRun {
  std::vector<RequestRecord> records;  // [requests]; input_tokens is the server's count if it reports one
  double cpu_share = 0;                // share of a core that this thread used while the load ran
};

class LoadClient {
 public:
  // Makes a client. `url` is "http://host:port" or the same with https, with or without "/v1". Returns kInvalidArgument
  // for any other URL. `api_key` is a single line, or "" for none. `ca_file` is a PEM file with the certificates that
  // are trusted for https. If it is "", the system's certificates are trusted.
  static Result<std::unique_ptr<LoadClient>> create(std::string url, const std::string& api_key,
                                                    std::string ca_file = "");
  ~LoadClient();

  // Returns the JSON that the server has at `path` ("/v1/models").
  Result<Json> get(const std::string& path);
  // Sends the load. A failed request becomes a record with its reason. An error is returned only if this client fails.
  Result<ClientRun> run(const ClientLoad& load);

 private:
  struct Impl;
  explicit LoadClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
