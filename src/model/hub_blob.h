// One file of the hub, fetched into the cache's blobs: resumed where an earlier attempt ended, checked against its
// digest, and put in its place by renaming. Processes that want the same blob wait for one another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/base/status.h"
#include "tessera/model/hub_cache.h"
#include "tessera/model/hub_http.h"
#include "tessera/model/hub_listing.h"

namespace tessera {

struct BlobRequest {
  std::string url;
  const HubFile& file;
  const HubFolder& folder;
  std::int64_t retry_delay_ms;                    // before the second attempt; twice as long before each further one
  std::function<void(std::int64_t)> on_progress;  // bytes of the file that are there
};

// Whether the blob is there, in full.
bool has_blob(const HubFolder& folder, const HubFile& file);

// Returns at once where the blob is there. What has come stays on disk whatever ends this (an error, a signal), unless
// it is wrong. A server that refuses gives the error of `refused`, told the reply.
Status fetch_blob(HttpClient& client, const BlobRequest& request,
                  const std::function<Status(const HttpReply&)>& refused);

// Calls `attempt` until its reply is no temporary failure, at most 5 times since the last that made progress; warns
// and waits in between. `what` names it in warnings.
Result<HttpReply> with_retries(const std::string& what, std::int64_t delay_ms,
                               const std::function<Result<HttpReply>()>& attempt,
                               const std::function<std::int64_t()>& progress);

}  // namespace tessera
