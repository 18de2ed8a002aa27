// One batch that is being answered: which of its requests are next, and what becomes of their answers.
//
// Threads: one at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/status.h"
#include "tessera/server/batches/batch.h"
#include "tessera/server/batches/batch_answers.h"
#include "tessera/server/batches/batch_input.h"

namespace tessera {

class BatchRun {
 public:
  // A request of the batch.
  struct Next {
    std::string custom_id{};
    BatchRequest request{};
  };

  // `batch` is in progress, and its input was checked. The files outlive the object.
  BatchRun(Batch batch, BatchInput input, std::unique_ptr<BatchAnswers> answers)
      : batch_(std::move(batch)), input_(std::move(input)), answers_(std::move(answers)) {}

  const Batch& batch() const { return batch_; }
  BatchAnswers& answers() { return *answers_; }

  // Returns a request that has no answer and does not run; nothing if there is none.
  std::optional<Next> next();
  // Gives a request back that could not run yet; it is next again.
  void put_back(Next request) { waiting_.push_front(std::move(request)); }

  // Counts a request that runs, and ends it with its answer. An error means that the batch cannot go on.
  void begin() { ++running_; }
  Status end(const std::string& custom_id, std::string_view line, bool completed);
  // Ends a request that ran without an answer: it is next again.
  void end_without_answer(Next request);
  // Returns whether every request has its answer.
  bool done() { return running_ == 0 && !peek(); }

  // Gives every request that has no answer an error with this code. Precondition: none runs.
  Status refuse_rest(std::string_view code, std::string_view message);

 private:
  bool peek();  // reads ahead, and returns whether there is a next request

  Batch batch_;
  BatchInput input_;
  std::unique_ptr<BatchAnswers> answers_;
  std::deque<Next> waiting_;  // requests that were read and do not run
  std::int64_t running_ = 0;
};

}  // namespace tessera
