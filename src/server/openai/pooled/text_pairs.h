// Scores pairs of texts: how relevant a document is to a query, or how similar two texts are.
//
// A classifier with one label (a cross encoder) reads both texts of a pair at once. The score is the sigmoid of its
// logit. For a regression model, or if the request's use_activation is false, the score is the logit. An embedding
// model embeds each text by itself. The score is then the cosine of the two vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/server/openai/pooled/pooled_fields.h"

namespace tessera {

// The texts on one side of the pairs, and the field that gave them.
struct PairSide {
  std::vector<std::string> texts;
  std::string param;
};

// Reads "instruct" or "instruction" for the template that joins the texts; "" if both are absent.
ApiResult<std::string> read_instruction(const ApiFields& fields);

class PairScores {
 public:
  // Makes the pairs: pair i joins firsts[i] with seconds[i]. If `firsts` has only one text, this text is the first of
  // all pairs. Errors: 400 if the model makes no scores, the numbers of texts do not match, a text is empty or too
  // long, or the template does not name the instruction.
  static ApiResult<PairScores> create(const ServedModel& model, const PooledFields& fields, const PairSide& firsts,
                                      const PairSide& seconds, const std::string& instruction);

  // Returns the requests for the engine. Call it once.
  std::vector<Request> take_requests() { return std::move(requests_); }
  // Takes the result of request `index`. Call it when this request has ended.
  void take(std::size_t index, Completion& end);
  std::size_t size() const { return num_pairs_; }
  // Returns a pair's score. Call it after all requests have ended.
  double score(std::size_t pair) const;
  const PooledUsage& usage() const { return usage_; }

 private:
  bool embeds_ = false;
  bool use_sigmoid_ = true;
  std::size_t num_firsts_ = 0;
  std::size_t num_pairs_ = 0;
  std::vector<Request> requests_;  // one for each pair; for embeddings, all first texts, then all second texts
  std::vector<std::vector<float>> results_;  // for each request, its logits or its embedding
  PooledUsage usage_;
};

}  // namespace tessera
