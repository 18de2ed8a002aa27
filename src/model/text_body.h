// A family's body is the graph that computes the hidden states (model.h). This file reads a body that is written as
// text (ir/text.h), with its weights. It checks that the body uses only inputs that the engine fills before a forward,
// and only states that the engine keeps between forwards.
//
//   FamilyBody body = TRY(read_text_body(text, specs, config, options, ops));
//
// The body's rules:
//   inputs   An input has a name and type of model.h (input_names). Nodes must read input_ids, input_rows, last_ids,
//            embedding_rows and embeddings, because a token's id or embedding may come from any of these. The other
//            inputs are optional: positions (rope_positions if the config's rotation has sections), and
//            "slots.<group>" for each cache group.
//   groups   A cache group is a set of layers that share a page table (ir::CacheGroup). There is at least one group.
//            Together the groups contain the config's layers. The first dimension of a state is the page symbol of its
//            group: P, P1, … The second dimension is ModelOptions::page_size, except in a state group, whose layers
//            keep one state for each request. Other dimensions are numbers.
//   sizes    A dimension of a value is a number, T, or the page symbol of a group.
//   output   There is exactly one output: X[T, hidden_size], where X is the type of activations.
//   weights  A weight has a constant shape and type f32, f16 or bf16. A weight without a spec is the tensor of the same
//            name.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"

namespace tessera {

// Parses and checks the body. Each element of `specs` must have parts or a constant. The weight's type is taken from
// the graph. Returns kInvalidArgument if the text is wrong. The message gives the line and the name of the faulty item.
Result<FamilyBody> read_text_body(std::string_view text, std::vector<WeightSpec> specs, const ModelConfig& config,
                                  const ModelOptions& options, const ir::OpTable& ops);

}  // namespace tessera
