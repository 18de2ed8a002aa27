// Handles POST /v1/responses/compact. The model summarises a conversation. The client continues from the user's
// messages and an item "compaction", which holds the summary, instead of the whole conversation.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Makes the job of a request from `owner`. Its fields are those of a response; `stream` and `background` must be false.
// Slow, like prepare_response(). `model` and `store` outlive the job.
ApiResult<ApiJob> prepare_compaction(const ServedModel& model, std::string_view body, ResponseStore& store,
                                     const std::string& owner);

// Returns the text that the model reads for an item "compaction". Error: the server did not make the item.
ApiResult<std::string> compacted_text(const ApiFields& item);

}  // namespace tessera
