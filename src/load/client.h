// A client of a server: sends completions at given times over HTTP and reads their streams, on the calling thread.
// libcurl is used in client.cpp alone.
#pragma once

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

// Completions to be streamed (POST /v1/completions).
struct ClientLoad {
  std::span<const double> send_at_s;                   // [requests], ascending
  std::function<std::string(std::size_t index)> body;  // called right before it is sent
  std::int64_t max_concurrency = 0;                    // requests under way; 0: any number
  std::function<void(std::size_t index)> on_end = {};
};

struct ClientRun {
  std::vector<RequestRecord> records;  // [requests]; input_tokens is the server's count where it tells
  double cpu_share = 0;                // of a core, by this thread, while the load ran
};

class LoadClient {
 public:
  // `url`: "http://host:port", with or without "/v1"; anything else is kInvalidArgument. `api_key`: one line; "": none.
  static Result<std::unique_ptr<LoadClient>> create(std::string url, const std::string& api_key);
  ~LoadClient();

  // The JSON at `path` ("/v1/models").
  Result<Json> get(const std::string& path);
  // A request that fails is a record with its reason; an error is this client's own.
  Result<ClientRun> run(const ClientLoad& load);

 private:
  struct Impl;
  explicit LoadClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
