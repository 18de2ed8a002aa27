// Reads a draft model and builds its graphs. A draft model is a smaller model that has the target model's token ids. It
// lies in a folder of its own. The target model checks the tokens that the draft model proposes (Leviathan et al.,
// arXiv 2211.17192).
//
//   row t:  token t, keys and values of the tokens before it  →  hidden state, from which the head drafts token t + 1
//
// The draft's layers count as the layers after the target's last layer. The draft's keys and values of token t lie at
// position t of the target's pages. The draft reads no hidden states of the target.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/config/config.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/weight_source.h"

namespace tessera {

// A draft model, as read_draft_model() finds it.
struct DraftModel {
  ModelConfig config;
  std::int64_t ids = 0;  // the draft proposes ids below this number: those that both vocabularies have
  std::shared_ptr<const Checkpoint> checkpoint = nullptr;  // null if the weights are random
};

// Reads the folder's config.json and the headers of its weights. If `reads_weights` is false, only config.json is read
// and the folder need not contain weights. Returns unimplemented for models that cannot draft for another model:
// mixtures, models that read images, GGUF files, models with a layer that does not cache the keys and values of all
// tokens, and models whose family writes the body as text or has change_body. Returns invalid_argument for models that
// generate no tokens. The vocabularies may differ in size. This function does not compare the tokenizers. The caller
// must do that.
Result<DraftModel> read_draft_model(const std::string& folder, const ModelConfig& target,
                                    const FamilyRegistry& families, bool reads_weights);

// Builds the graphs of options.draft_model. Adds the draft's weights to target.weights. Also adds the format
// descriptions of the draft's linears to `target`. Precondition: target.body is complete. Returns unimplemented if no
// layer of the target caches the keys and values of all tokens, and invalid_argument if ranks cannot share the draft's
// heads equally.
Result<DraftGraphs> build_draft_model(const ModelOptions& options, const ir::OpTable& ops,
                                      const FamilyRegistry& families, ModelGraphs& target);

// The prefix that distinguishes the names of the draft's weights and tensors from the target's names.
inline constexpr std::string_view kDraftModelPrefix = "draft.";
// Reads the draft's tensors from its folder, and all other tensors from `model`.
WeightSource with_draft_model(WeightSource model, const DraftModel& draft);

}  // namespace tessera
