#include "tessera/server/batches/route_work.h"

#include <utility>

#include "tessera/server/work/request_reader.h"

namespace tessera {

void RouteWork::answer(const Call& call, TextWork work, std::function<ApiResult<std::string>()> make) const {
  pools.post(work, call, [server = &http, call, make = std::move(make)] {
    ApiResult<std::string> body = guarded<std::string>(make);
    server->post([call, body = std::move(body)]() mutable {
      if (!body.ok()) return call.refuse(body.error());
      call.respond_json(*std::move(body));
    });
  });
}

ApiError no_file_folder() {
  return {.http_status = 501,
          .message = "this server keeps no files: it was started without a folder for them (--file-storage-path)",
          .param = {},
          .code = "files_disabled"};
}

}  // namespace tessera
