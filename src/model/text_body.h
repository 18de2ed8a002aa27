// A family's body that was written as text (ir/text.h), and its weights: parsed, and held against what the engine
// stages before a forward and keeps behind it.
//
//   FamilyBody body = TRY(read_text_body(text, specs, config, options, ops));
//
// The body's rules:
//   inputs   by the names of model.h (input_names), with those types. input_ids, input_rows, last_ids, embedding_rows
//            and embeddings must be read by some node: ids come on all of these ways. The others are there at will:
//            positions (rope_positions where the config's rotation has sections), and "slots.<group>" for each group.
//   groups   at least one, whose layers are the config's; group i's states begin with P, P1, … and have pages of
//            ModelOptions::page_size tokens, but for a state group; their other dimensions are numbers.
//   sizes    of values are numbers, T, and the groups' P.
//   output   one: X[T, hidden_size], X the type of activations.
//   weights  of constant shapes, of f32, f16 or bf16. One without a spec is the tensor of its name.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"

namespace tessera {

// `specs` have parts or constants; their types come from the graph. kInvalidArgument with the line, and the name of
// what is wrong.
Result<FamilyBody> read_text_body(std::string_view text, std::vector<WeightSpec> specs, const ModelConfig& config,
                                  const ModelOptions& options, const ir::OpTable& ops);

}  // namespace tessera
