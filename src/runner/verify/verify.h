// The oracle compares every captured size of every runner with a run of the same kernels on isolated memory.
//
// An eager run and a graph run share the program and the memory plan, so a faulty plan would make both wrong in the
// same way. The oracle therefore compares each size's replay, bit for bit, with an isolated run. In this run every
// value has its own guarded allocation, which is first filled with NaN.
//
// To notice a padding row that influences a real row, the oracle gives padding rows a token id whose embedding row is
// NaN. In the isolated run, the padding rows of attention's output are NaN too. The batches have several requests with
// cached prefixes. The lengths of the requests differ from those in the batches with which sizes were captured. Each
// cache group takes pages from its own pool. A group with a sliding window leaves out the pages before the window.
// Pages that belong to no request are NaN. This exposes a kernel that reads another group's page table. KV cache
// contents are compared too.
//
// The oracle also compares the head, a next-token layer (multi-token prediction) or draft model, and the head of this
// layer or draft model. All three run without graphs. The layer or draft model is compared at its largest size and at
// all sizes that are powers of two. A graph that also runs the draft head is compared like the graphs of decodes, and
// above size 1 also on a batch that wants only the last row of each request. verify_vision.h compares a vision tower. A
// prefill size with a full graph is compared twice, once with its pieces and once with the full graph. An attention
// that computes only the wanted rows uses other kernels than one that computes all rows. If the last layer's attention
// computes only the wanted rows, each prefill size above 1 is also compared on a batch that wants only the last row of
// each request.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

struct VerifyRow {
  // The runner's name (runner_role_name), followed by ", full", ", last rows" or ", drafts" where they apply, for
  // example "prefill, full, last rows".
  std::string runner;
  std::int64_t size = 0;
  std::int64_t real = 0;   // number of rows that are not padding
  std::string difference;  // empty if the results are equal
};

struct VerifyReport {
  std::vector<VerifyRow> rows;
  double seconds = 0;
  bool equal() const;  // true if all rows are equal and there is at least one
};

// Captures pending sizes, and compares every size. Precondition: runner.capture() ran, and no forward is in flight.
// Overwrites the KV cache, and needs memory for one isolated copy of the largest size. verify() returns an error if the
// comparison could not run. A difference is no error, but a row of the report. If there are several ranks, each rank
// compares its own results. The result is the report of rank 0, and a difference on another rank becomes an error that
// names the rank.
Result<VerifyReport> verify(ModelRunner& runner, bool show_progress);

}  // namespace tessera
