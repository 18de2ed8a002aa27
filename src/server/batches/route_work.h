// Helpers of the routes of files and batches. Most of these routes work on a pool's thread, because the disk may block.
//
// Threads: all functions are called on the I/O thread. Only the function `make` of answer() runs on a pool's thread.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "tessera/server/api_result.h"
#include "tessera/server/http/call.h"
#include "tessera/server/http/client_of.h"
#include "tessera/server/work/text_pools.h"

namespace tessera {

// The members outlive the routes.
struct RouteWork {
  TextPools& pools;
  HttpServer& http;
  std::span<const std::string> keys;  // all keys of the server

  std::string owner(const Call& call) const { return owner_of(call.request(), keys); }
  // Runs `make` on a thread of the pool that does this kind of work. Answers the call with the JSON or the error that
  // `make` returns.
  void answer(const Call& call, TextWork work, std::function<ApiResult<std::string>()> make) const;
};

// Returns the refusal of a server that was started without a folder for files.
ApiError no_file_folder();

}  // namespace tessera
