// Decides where a server publishes the loads of its engines, from the flag --load-publish-endpoint, which has SGLang's
// form.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/server/events/kv_events_options.h"

namespace tessera {

// Returns the endpoint tcp://HOST:PORT of the first engine. Engine i publishes at PORT + i. Returns "" if nothing is
// published. `text` is the flag's value:
//   - "off" or "": nothing is published.
//   - "auto": the load ports follow the ports of the KV cache events. If they would then overlap the replay ports, they
//     follow the replay ports instead.
//   - tcp://HOST:PORT: this is the endpoint.
// Gateways learn the port from the description of the events in /server_info. Publishing loads without events is
// therefore an error. Other errors: any other `text`, and ports that overlap or are too large.
Result<std::string> load_endpoint(std::string_view text, const KvEventsOptions& events, int engines);

}  // namespace tessera
