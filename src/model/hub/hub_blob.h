// Downloads one file of the hub into the blobs of the local cache. A download resumes an earlier partial download. When
// all bytes are there, their digest is checked, and the file is renamed to its final name. If several processes want
// the same blob, one downloads it and the others wait.
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
  std::int64_t retry_delay_ms;  // delay before the second attempt; doubled before each further attempt
  std::function<void(std::int64_t)> on_progress;  // bytes downloaded so far
};

// Returns whether the complete blob exists.
bool has_blob(const HubFolder& folder, const HubFile& file);

// Downloads the blob. Returns at once if the blob exists. After an error or a signal the downloaded bytes stay on disk,
// unless they are known to be wrong. If the server refuses, `refused` converts its reply to the returned error.
Status fetch_blob(HttpClient& client, const BlobRequest& request,
                  const std::function<Status(const HttpReply&)>& refused);

// Calls `attempt` until its reply is not a temporary failure. Gives up after 5 attempts. If `progress` returns a larger
// number after an attempt than before it, the count of attempts restarts at 1. Logs a warning and waits between
// attempts. `what` names the download in warnings.
Result<HttpReply> with_retries(const std::string& what, std::int64_t delay_ms,
                               const std::function<Result<HttpReply>()>& attempt,
                               const std::function<std::int64_t()>& progress);

}  // namespace tessera
