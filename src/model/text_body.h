// A family's body that was written as text (ir/text.h), and its weights. It is parsed, and checked against what the
// engine stages before a forward and keeps after it.
//
//   FamilyBody body = TRY(read_text_body(text, specs, config, options, ops));
//
// The body's rules:
//   inputs   named as in model.h (input_names), with the types given there. input_ids, input_rows, last_ids,
//            embedding_rows and embeddings must be read by some node, because ids come in all of these ways. The
//            others are optional: positions (rope_positions if the config's rotation has sections), and
//            "slots.<group>" for each group.
//   groups   at least one, whose layers are the config's; group i's states begin with P, P1, … and have pages of
//            ModelOptions::page_size tokens, except in a state group; their other dimensions are numbers.
//   sizes    of values are numbers, T, and the groups' P.
//   output   one: X[T, hidden_size], where X is the type of activations.
//   weights  have constant shapes, and are f32, f16 or bf16. A weight without a spec is the tensor with its name.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"

namespace tessera {

// Parses and checks the body. `specs` have parts or constants; their types come from the graph. kInvalidArgument with
// the line and the name of the faulty item.
Result<FamilyBody> read_text_body(std::string_view text, std::vector<WeightSpec> specs, const ModelConfig& config,
                                  const ModelOptions& options, const ir::OpTable& ops);

}  // namespace tessera
