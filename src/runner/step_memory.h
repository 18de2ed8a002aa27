// The memory that the forwards of one model read and write, except for the arenas: caches, static inputs, plans and
// adapters. It is made once, and its addresses never change.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/step_buffer.h"
#include "tessera/piecewise/external_values.h"
#include "tessera/runner/adapters/adapter_tables.h"
#include "tessera/runner/drafts/draft_hidden.h"
#include "tessera/runner/drafts/target_ids.h"
#include "tessera/runner/embedding_rows.h"
#include "tessera/runner/memory/edit_buffers.h"
#include "tessera/runner/memory/input_buffers.h"
#include "tessera/runner/memory/kv_storage.h"
#include "tessera/runner/op_plans.h"
#include "tessera/runner/runner_model.h"

namespace tessera {

struct StepMemory {
  KvStorage kv;
  EditBuffers edits;
  EmbeddingRows embeddings;
  std::unique_ptr<DraftHidden> draft_hidden;  // null if the model drafts nothing
  std::unique_ptr<TargetIds> target_ids;      // null if drafts have the model's own ids
  std::unique_ptr<AdapterTables> adapters;    // null if no adapters are served
  // Holds the plans and the inputs that the host stages for a forward (Launcher), so a single copy transfers them to
  // the device.
  std::unique_ptr<StepBuffer> step_buffer;
  OpPlans plans;
  InputBuffers inputs;

  // `model` and `stream` must outlive the memory.
  static Result<std::unique_ptr<StepMemory>> create(const RunnerModel& model, Stream& stream);
  // Adds the addresses of all values that graphs name.
  void add_to(ExternalValues& externals) const;
  // Returns the bytes of everything that the graphs read as inputs: of all members except caches, adapters and plans.
  std::int64_t input_bytes() const;
};

}  // namespace tessera
