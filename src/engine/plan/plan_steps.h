// The steps of a plan (engine_plan.h). Each step decides one thing. It uses the options, the device and the decisions
// of earlier steps.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {

// A plan in progress, and the inputs of its steps.
struct PlanDraft {
  const EngineOptions& options;
  Device& device;  // steps only read its properties and free memory
  int rank = 0;
  bool gguf = false;  // the model is a GGUF file; known after read_config()
  EnginePlan plan{};
  std::shared_ptr<const Checkpoint> stored{};  // set by open_checkpoint()

  const DeviceProperties& properties() const { return device.properties(); }
};

using PlanStep = Status (*)(PlanDraft& draft);

// Opens the model's checkpoint, once for all steps.
Result<std::shared_ptr<const Checkpoint>> open_checkpoint(PlanDraft& draft);
// Does the same as open_checkpoint(), but returns null for random weights and for a folder without weights, because a
// plan can be made without weights.
Result<std::shared_ptr<const Checkpoint>> find_checkpoint(PlanDraft& draft);

// Steps in plan_checks.cpp:
Status check_values(PlanDraft& draft);  // checks option values that need no model

// Steps in plan_drafts.cpp:
Status choose_drafts(PlanDraft& draft);  // decides where drafts come from; refuses drafts that cannot be exact
// Checks the options of drafts that need no model.
Status check_draft_options(const EngineOptions& options);
// Reads the draft layer or the draft model of speculative_draft_model_path, and compares it with the plan's model. Does
// nothing for other sources of drafts. A part of build_graphs().
Status read_draft_folder(PlanDraft& draft);
// Adds a fact if drafts use the model's own head although the draft layer is quantised. Needs the plan's graphs.
void note_draft_head(EnginePlan& plan);

// Steps in plan_formats.cpp, which are parts of read_config() and build_graphs():
// Checks the requested format against the checkpoint's. If the checkpoint is not quantised, sets the plan's config so
// that the start quantises the model to the requested format.
Status apply_quantization(PlanDraft& draft);
// Sets the format of lm_head_quantization. Refuses it for models without a head of logits, and for GGUF files.
Status choose_head_format(PlanDraft& draft);
// Returns an error if the head should be quantised, but is already stored quantised or has rows that do not fit the
// format. Needs the plan's graphs.
Status check_quantised_head(const PlanDraft& draft);

// The step in plan_types.cpp:
Status choose_types(PlanDraft& draft);  // chooses the types of activations and KV cache

// Steps in plan_model.cpp:
Status read_config(PlanDraft& draft);     // sets EnginePlan::config and EnginePlan::embedding
Status build_graphs(PlanDraft& draft);    // sets the plan's model, graphs and parameters
Status rewrite_graphs(PlanDraft& draft);  // runs the passes on the graphs that are captured
// Gives prompts a graph that computes the last layer's last nodes for wanted rows only.
Status add_wanted_rows(PlanDraft& draft);
Status add_adapters(PlanDraft& draft);  // gives forwards with adapters graphs of their own

// Steps in plan_sizes.cpp:
// Limits a forward's tokens and the running requests; sets context length and page size.
Status choose_limits(PlanDraft& draft);
// Limits the requests of a forward, drafts included. Needs the plan's source of drafts.
Status choose_rows(PlanDraft& draft);
Status reserve_images(PlanDraft& draft);  // decides how many image rows have memory
Status choose_ladders(PlanDraft& draft);  // chooses the sizes of prefills and decodes that are captured
Status choose_tower(PlanDraft& draft);    // chooses the sizes of the vision tower
Status divide_memory(PlanDraft& draft);   // divides the memory: weights, KV cache, forwards and graphs

// Steps in plan_running.cpp:
Status choose_running(PlanDraft& draft);    // decides how steps and forwards are run, measured and checked
Status choose_compilers(PlanDraft& draft);  // chooses the compilers of prefill pieces and decodes
Status choose_graphs(PlanDraft& draft);     // decides which forwards have graphs, by the rules
Status choose_cuts(PlanDraft& draft);       // chooses the operators at which prefill graphs are cut
Status note_halves(PlanDraft& draft);       // adds a note if two-batch overlap has no effect

}  // namespace tessera
