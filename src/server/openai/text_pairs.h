// Scores of pairs of texts: how relevant a document is to a query, or how alike two texts are.
//
// A classifier with one label (a cross encoder) reads both texts of a pair at once, and the score is the sigmoid of its
// logit. With an embedding model each text is embedded by itself, and the score is the cosine of the two vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/server/fields/pooled_fields.h"

namespace tessera {

// The texts of one side of the pairs, and the field that they came from.
struct PairSide {
  std::vector<std::string> texts;
  std::string param;
};

// "instruct" or "instruction", for the template that joins the texts; "" where absent.
ApiResult<std::string> read_instruction(const ApiFields& fields);

class PairScores {
 public:
  // Pair i is of firsts[i], or of the only one, and seconds[i]. 400 where the model makes no scores, the sides
  // do not go together, a text is empty or too long, or no template names the instruction.
  static ApiResult<PairScores> create(const ServedModel& model, const PooledFields& fields, const PairSide& firsts,
                                      const PairSide& seconds, const std::string& instruction);

  // What the engine is asked; once.
  std::vector<Request> take_requests() { return std::move(requests_); }
  // The end of request `index`.
  void take(std::size_t index, Completion& end);
  std::size_t size() const { return num_pairs_; }
  // Once all requests have ended.
  double score(std::size_t pair) const;
  const PooledUsage& usage() const { return usage_; }

 private:
  bool embeds_ = false;
  bool use_sigmoid_ = true;
  std::size_t num_firsts_ = 0;
  std::size_t num_pairs_ = 0;
  std::vector<Request> requests_;            // of each pair, or of the firsts and then the seconds
  std::vector<std::vector<float>> results_;  // [requests]: logits, or a vector
  PooledUsage usage_;
};

}  // namespace tessera
