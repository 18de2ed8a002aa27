// The oracle: every captured size of every runner, after all captures, against the same kernels
// on isolated memory.
//
// Eager and graph share program and memory plan, so a fault of the plan would corrupt both alike.
// Here each size's replay is compared, bit for bit, with a run in which every value has a NaN-poisoned,
// guarded allocation of its own. Padded rows carry an id whose embedding row is NaN, and rows past the
// real count of attention's output are NaN there: if a padded row could touch a real one, it would show.
// The batches have other lengths than those the graphs were captured with, several requests, cached
// prefixes, and in each cache group pages of its own pool, those before a window left out. Pages of no request are NaN,
// so that a kernel that reads another group's page table shows. KV cache content is compared too. The head, which is
// not captured, is compared for its sizes; a vision tower is compared by verify_vision.h. Of a prefill size that is
// replayed as one graph both forms are compared. Where the last attention computes wanted rows alone, each prefill size
// above 1 is compared once more with a batch that wants the last row of each request, which other kernels compute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

struct VerifyRow {
  // "prefill" "prefill, full" "prefill, last rows" "prefill, full, last rows" "decode" "head" "vision"
  std::string runner;
  std::int64_t size = 0;
  std::int64_t real = 0;   // rows that are not padding
  std::string difference;  // empty: equal
};

struct VerifyReport {
  std::vector<VerifyRow> rows;
  double seconds = 0;
  bool equal() const;  // and not empty
};

// Of every size: those that are still to be captured are captured first. Precondition: runner.capture() ran, none is in
// flight. Overwrites the KV cache; needs room for one isolated copy of the largest size. An error is a failure to
// compare; a difference is a row of the report. Of
// several ranks each compares its own; the report is rank 0's, and a difference on another is an error that names it.
Result<VerifyReport> verify(ModelRunner& runner, bool show_progress);

}  // namespace tessera
