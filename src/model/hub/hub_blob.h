// Downloads one file of the hub into the cache's blobs. A download resumes an earlier partial one, is checked against
// the file's digest, and is renamed to its final name. Processes that download the same blob wait for one another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/base/status.h"
#include "tessera/model/hub/hub_cache.h"
#include "tessera/model/hub/hub_http.h"
#include "tessera/model/hub/hub_listing.h"

namespace tessera {

struct BlobRequest {
  std::string url;
  const HubFile& file;
  const HubFolder& folder;
  std::int64_t retry_delay_ms;                    // before the second attempt; doubled for each further one
  std::function<void(std::int64_t)> on_progress;  // bytes downloaded so far
};

// Returns whether the complete blob exists.
bool has_blob(const HubFolder& folder, const HubFile& file);

// Downloads the blob; returns at once if it exists. Bytes that were downloaded stay on disk after an error or a signal,
// unless they are wrong. If the server refuses, `refused` makes the error from its reply.
Status fetch_blob(HttpClient& client, const BlobRequest& request,
                  const std::function<Status(const HttpReply&)>& refused);

// Calls `attempt` until its reply is not a temporary failure, at most 5 times without progress. Logs a warning and
// waits between attempts. `what` names the download in warnings.
Result<HttpReply> with_retries(const std::string& what, std::int64_t delay_ms,
                               const std::function<Result<HttpReply>()>& attempt,
                               const std::function<std::int64_t()>& progress);

}  // namespace tessera
