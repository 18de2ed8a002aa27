// The routes of /v1/responses, which are also served without the prefix /v1. They make responses, in the foreground or
// in the background. They also read, stream, delete or cancel stored responses. A client reaches only the responses of
// its own API key.
//
// Threads: used on the I/O thread only.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/server/http/call.h"
#include "tessera/server/http/router.h"
#include "tessera/server/responses/response_request.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/work/live_jobs.h"
#include "tessera/server/work/request_reader.h"

namespace tessera {

class ResponseRoutes {
 public:
  // `keys` are all keys of the server. They and the references outlive the object. `refusal` returns the error if the
  // server cannot make a new response now, and otherwise nothing.
  ResponseRoutes(ResponseStore& store, LiveJobs& jobs, RequestReader& reader, std::span<const std::string> keys,
                 std::function<std::optional<ApiError>()> refusal)
      : store_(store), jobs_(jobs), reader_(reader), keys_(keys), refusal_(std::move(refusal)) {}

  // Adds the routes. This object must outlive the use of the router.
  void add_to(Router& router);

 private:
  // Answers POST …/responses.
  void make(Call call) const;
  // Answers POST …/responses/input_tokens.
  void count_tokens(Call call) const;
  // Answers POST …/responses/compact.
  void compact(Call call) const;
  // Starts the job. A background response is answered at once and continues when its client leaves.
  void start(Call call, ResponseJob made) const;
  // Answers GET …/responses/ID (as events with stream=true) and …/responses/ID/input_items.
  void get(const Call& call, const std::string& owner) const;
  // Answers DELETE …/responses/ID. Cancels a running response first.
  void erase(const Call& call, const std::string& owner) const;
  // Answers POST …/responses/ID/cancel, which ends a background response.
  void cancel(const Call& call, const std::string& owner) const;

  ResponseStore& store_;
  LiveJobs& jobs_;
  RequestReader& reader_;
  std::span<const std::string> keys_;
  std::function<std::optional<ApiError>()> refusal_;
};

}  // namespace tessera
