// Admits requests to an engine: checks them against the model and its limits, and makes their sequences.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/engine/adapters/adapter_pool.h"
#include "tessera/engine/admission/seed_stream.h"
#include "tessera/engine/images/image_encoder.h"
#include "tessera/engine/request.h"
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/engine/schedule/sequence.h"
#include "tessera/engine/start/loaded_model.h"

namespace tessera {

class Admission {
 public:
  // All arguments must outlive the admission. `adapters` holds the adapters that requests may name. `encoder` encodes
  // the model's images; it is null if the model takes none.
  Admission(const LoadedModel& model, const ImageEncoder* encoder, Scheduler& scheduler, const AdapterPool& adapters);

  // Returns the maximum number of tokens of a request, prompt and output together. This is the context length, or the
  // KV cache's capacity if that is less.
  std::int64_t max_request_tokens() const;

  // Returns the request's sequence, for the scheduler. Returns kInvalidArgument if the model cannot serve the request.
  // Returns kNotFound for an adapter that is not loaded. Returns kResourceExhausted if there is no memory for the
  // request's embeddings, or if max_queued_requests requests wait already. A probe (kProbePriority) is admitted even if
  // that many requests wait.
  Result<std::unique_ptr<Sequence>> admit(Request request);

  // Returns the object that decides which requests get drafts by a layer or draft model.
  DraftTrials& trials() { return *trials_; }

 private:
  Status check(Request& request) const;
  Status check_inputs(const Request& request) const;
  Status check_task(const Request& request) const;
  Status check_length(const Request& request) const;
  Status check_queue(const Request& request) const;
  Status reserve_embeddings(const Request& request);
  std::unique_ptr<Sequence> sequence_of(Request request);

  const LoadedModel& model_;
  const ImageEncoder* encoder_;
  Scheduler& scheduler_;
  const AdapterPool& adapters_;
  SeedStream seeds_;
  std::shared_ptr<DraftTrials> trials_ = std::make_shared<DraftTrials>();  // for drafts by a layer or draft model
  std::int64_t next_id_ = 0;
};

}  // namespace tessera
