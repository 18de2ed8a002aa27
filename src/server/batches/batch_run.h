// The state of one batch while it runs: chooses its next requests and stores their answers.
//
// Threads: one thread at a time may use an object.
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

  // `batch` is in progress, and its input file was checked. The file store that `answers` uses outlives the object.
  BatchRun(Batch batch, BatchInput input, std::unique_ptr<BatchAnswers> answers)
      : batch_(std::move(batch)), input_(std::move(input)), answers_(std::move(answers)) {}

  const Batch& batch() const { return batch_; }
  BatchAnswers& answers() { return *answers_; }

  // Returns the next request that has no answer and is not running, or nothing if there is none.
  std::optional<Next> next();
  // Puts back a request that could not start, so that next() returns it before all others.
  void put_back(Next request) { waiting_.push_front(std::move(request)); }

  // begin() counts a request as running. end() stops counting it, and stores its answer as BatchAnswers::add() does. If
  // end() returns an error, the batch cannot continue.
  void begin() { ++running_; }
  Status end(const std::string& custom_id, std::string_view line, const std::optional<Usage>& usage);
  // Ends a running request that got no answer. next() returns it again.
  void end_without_answer(Next request);
  // Returns whether every request has its answer.
  bool done() { return running_ == 0 && !peek(); }

  // Stores an error with this code for every request without an answer. Precondition: no request is running.
  Status refuse_rest(std::string_view code, std::string_view message);

 private:
  bool peek();  // reads until a request is waiting; returns whether there is one

  Batch batch_;
  BatchInput input_;
  std::unique_ptr<BatchAnswers> answers_;
  std::deque<Next> waiting_;  // requests that were read and are not running
  std::int64_t running_ = 0;
};

}  // namespace tessera
