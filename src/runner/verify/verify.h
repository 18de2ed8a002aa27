// The oracle: compares every captured size of every runner, after all captures, with the same kernels on isolated
// memory.
//
// Eager and graph runs share program and memory plan, so a fault of the plan would corrupt both alike. The oracle
// compares each size's replay, bit for bit, with a run in which every value has a NaN-poisoned, guarded allocation of
// its own. Padded rows carry an id whose embedding row is NaN, and rows of attention's output past the real count are
// NaN there, so a padded row that influences a real one shows. The batches have other lengths than those of the
// captures, several requests, cached prefixes, and pages of each cache group's own pool without the pages before a
// window. Pages of no request are NaN, so that a kernel that reads another group's page table shows. KV cache contents
// are compared too.
//
// The head, which is not captured, is compared for its sizes. verify_vision.h compares a vision tower. A prefill size
// with a full graph is compared in both forms. If the last attention computes wanted rows alone, each prefill size
// above 1 is also compared with a batch that wants the last row of each request, which other kernels compute.
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
  std::string difference;  // empty: the results are equal
};

struct VerifyReport {
  std::vector<VerifyRow> rows;
  double seconds = 0;
  bool equal() const;  // true if all rows are equal and there is at least one
};

// Compares every size, and captures pending sizes first. Precondition: runner.capture() ran, and no forward is in
// flight. Overwrites the KV cache, and needs memory for one isolated copy of the largest size. An error means that the
// comparison failed to run; a difference is a row of the report. With several ranks each compares its own results. The
// report is rank 0's, and a difference on another rank is an error that names it.
Result<VerifyReport> verify(ModelRunner& runner, bool show_progress);

}  // namespace tessera
