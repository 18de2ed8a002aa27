// POST /generate in SGLang's form: texts, ids or embeddings in; texts, ids and meta information out.
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Takes its time (tokenises, compiles a grammar): not for the I/O thread. `model` outlives the job.
ApiResult<ApiJob> prepare_generate(const ServedModel& model, std::string_view body);

}  // namespace tessera
